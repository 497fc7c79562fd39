package offsetlog.segment;

import java.nio.charset.StandardCharsets;

/**
 * Thrift's compact protocol, in which Parquet writes footers and the headers of pages.
 *
 * <p>Invariants:
 *
 * <ol>
 *   <li>Nothing outside {@code [start, end)} is read, whatever the bytes say; no count is believed
 *       that has no room in what is left, and all lists together have at most {@link #MAX_ELEMENTS}.
 *   <li>The rules are those of {@code offsetlog/format/thrift.py}: fields ascend, numbers have at
 *       most 64 bits, structs and lists are not nested deeply.
 *   <li>A value is read only as the type that it has. Nothing is skipped: what is not known here is
 *       unreadable, so this reader can't take it in another way than Python's.
 * </ol>
 */
final class Compact {
  static final int TRUE = 1;
  static final int FALSE = 2;
  static final int I16 = 4;
  static final int I32 = 5;
  static final int I64 = 6;
  static final int BINARY = 8;
  static final int LIST = 9;
  static final int STRUCT = 12;
  private static final int STOP = 0;
  private static final int DEEPEST = 32;
  private static final int MAX_FIELD = 64;
  private static final int MAX_ELEMENTS = 100_000;
  private static final int LONG_LIST = 15;

  private final byte[] data;
  private final int end;
  private int at;
  private int elements = MAX_ELEMENTS;
  private int depth;

  /** Of each struct that was entered: the field that was found last, and all of them as bits. */
  private final int[] ids = new int[DEEPEST + 1];

  private final long[] found = new long[DEEPEST + 1];

  /** The type of the field that {@link #field} found. */
  int type;

  Compact(byte[] data, int start, int end) {
    this.data = data;
    this.at = start;
    this.end = end;
  }

  int position() {
    return at;
  }

  /** The number of the field that {@link #field} found. */
  int id() {
    return ids[depth];
  }

  /** Enter the outermost struct, or one in a list. */
  void enter() throws Unreadable {
    if (++depth > DEEPEST) {
      throw broken();
    }
    ids[depth] = 0;
    found[depth] = 0;
  }

  /** Enter the struct that is the field. */
  void enterField() throws Unreadable {
    expect(STRUCT);
    enter();
  }

  /** Leave a struct, which must have these fields. */
  void leave(long required) throws Unreadable {
    if ((found[depth] & required) != required) {
      throw broken();
    }
    depth--;
  }

  /** Leave a struct in which nothing is. */
  void leaveEmpty() throws Unreadable {
    if (field()) {
      throw unknown();
    }
    leave(0);
  }

  static long fields(int... ids) {
    long out = 0;
    for (int id : ids) {
      out |= 1L << id;
    }
    return out;
  }

  /** Whether the struct has another field; then its number and type are known. */
  boolean field() throws Unreadable {
    int head = next();
    if (head == STOP) {
      return false;
    }
    int step = head >>> 4;
    // A writer spells out only numbers that are 16 or more after the one before.
    if (step == 0 || ids[depth] > MAX_FIELD) {
      throw broken();
    }
    ids[depth] += step;
    found[depth] |= 1L << ids[depth];
    type = head & 0xF;
    return true;
  }

  void expect(int wanted) throws Unreadable {
    if (type != wanted) {
      throw broken();
    }
  }

  /** The size of the list that is the field, all of whose elements have a type. */
  int list(int of) throws Unreadable {
    expect(LIST);
    int head = next();
    int size = head >>> 4;
    size = bounded(size == LONG_LIST ? varint() : size);
    elements -= size;
    if (elements < 0 || (head & 0xF) != of) {
      throw broken();
    }
    return size;
  }

  boolean truth() throws Unreadable {
    if (type != TRUE && type != FALSE) {
      throw broken();
    }
    return type == TRUE;
  }

  int i32() throws Unreadable {
    expect(I32);
    return asInt(number());
  }

  /** A number of things, or of bytes. */
  long count() throws Unreadable {
    expect(I64);
    return atLeastZero(number());
  }

  int count32() throws Unreadable {
    expect(I32);
    return asInt(atLeastZero(number()));
  }

  /** A whole number, as an element of a list has it. */
  long number() throws Unreadable {
    long raw = varint();
    return (raw >>> 1) ^ -(raw & 1);
  }

  byte[] bytes() throws Unreadable {
    expect(BINARY);
    return element();
  }

  String text() throws Unreadable {
    return new String(bytes(), StandardCharsets.UTF_8);
  }

  /** Bytes, as an element of a list has them. */
  byte[] element() throws Unreadable {
    int length = bounded(varint());
    byte[] out = java.util.Arrays.copyOfRange(data, at, at + length);
    at += length;
    return out;
  }

  private int next() throws Unreadable {
    if (at >= end) {
      throw broken();
    }
    return data[at++] & 0xFF;
  }

  private long varint() throws Unreadable {
    long out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      int part = next();
      out |= (long) (part & 0x7F) << shift;
      if (part < 0x80) {
        if (shift == 63 && part > 1) {
          throw broken();
        }
        return out;
      }
    }
    throw broken();
  }

  private int bounded(long size) throws Unreadable {
    if (size < 0 || size > end - at) {
      throw broken();
    }
    return (int) size;
  }

  private static int asInt(long value) throws Unreadable {
    if (value != (int) value) {
      throw broken();
    }
    return (int) value;
  }

  private static long atLeastZero(long value) throws Unreadable {
    if (value < 0) {
      throw broken();
    }
    return value;
  }

  static Unreadable unknown() {
    return new Unreadable("its footer or a header of a page has what our writers don't write");
  }

  private static Unreadable broken() {
    return new Unreadable("its footer or a header of a page is not as Parquet's are");
  }
}
