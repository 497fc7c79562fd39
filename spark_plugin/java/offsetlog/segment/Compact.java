package offsetlog.segment;

import java.nio.charset.StandardCharsets;

/**
 * Thrift's compact protocol, in which Parquet writes footers and the headers of pages.
 *
 * <p>Invariants: nothing outside {@code [start, end)} is read, whatever the bytes say; and no count
 * is believed that has no room in what is left.
 */
final class Compact {
  static final int STOP = 0;
  static final int TRUE = 1;
  static final int FALSE = 2;
  static final int BYTE = 3;
  static final int I16 = 4;
  static final int I32 = 5;
  static final int I64 = 6;
  static final int DOUBLE = 7;
  static final int BINARY = 8;
  static final int LIST = 9;
  static final int SET = 10;
  static final int MAP = 11;
  static final int STRUCT = 12;
  private static final int DEEPEST = 32;
  private static final int DOUBLE_BYTES = 8;

  private final byte[] data;
  private final int end;
  private int at;
  private int depth;

  /** The number and the type of the field that {@link #field} found. */
  int id;

  int type;

  Compact(byte[] data, int start, int end) {
    this.data = data;
    this.at = start;
    this.end = end;
  }

  int position() {
    return at;
  }

  /** Enter a struct: its fields are counted from 0. The number is handed back to {@link #leave}. */
  int enter() throws Unreadable {
    if (++depth > DEEPEST) {
      throw broken();
    }
    int outer = id;
    id = 0;
    return outer;
  }

  void leave(int outer) {
    depth--;
    id = outer;
  }

  /** Whether the struct has another field; then its number and type are known. */
  boolean field() throws Unreadable {
    int head = next();
    type = head & 0xF;
    if (type == STOP) {
      return false;
    }
    int step = head >>> 4;
    id = step == 0 ? i32() : id + step;
    return true;
  }

  /** The size of a list, and with it the type of its elements, in {@link #type}. */
  int list() throws Unreadable {
    int head = next();
    type = head & 0xF;
    int size = head >>> 4;
    return bounded(size == 15 ? varint() : size);
  }

  int i32() throws Unreadable {
    long value = i64();
    if (value != (int) value) {
      throw broken();
    }
    return (int) value;
  }

  long i64() throws Unreadable {
    long raw = varint();
    return (raw >>> 1) ^ -(raw & 1);
  }

  byte[] bytes() throws Unreadable {
    int length = bounded(varint());
    byte[] out = java.util.Arrays.copyOfRange(data, at, at + length);
    at += length;
    return out;
  }

  String text() throws Unreadable {
    return new String(bytes(), StandardCharsets.UTF_8);
  }

  /** Skip the value of a field or an element of a type. */
  void skip(int type) throws Unreadable {
    switch (type) {
      case TRUE, FALSE -> {}
      case BYTE -> next();
      case I16, I32, I64 -> varint();
      case DOUBLE -> at += bounded(DOUBLE_BYTES);
      case BINARY -> {
        int length = bounded(varint());
        at += length;
      }
      case LIST, SET -> {
        int size = list();
        int of = this.type;
        for (int i = 0; i < size; i++) {
          skipElement(of);
        }
      }
      case MAP -> {
        int size = bounded(varint());
        if (size > 0) {
          int of = next();
          for (int i = 0; i < size; i++) {
            skipElement(of >>> 4);
            skipElement(of & 0xF);
          }
        }
      }
      case STRUCT -> {
        int outer = enter();
        while (field()) {
          skip(this.type);
        }
        leave(outer);
      }
      default -> throw broken();
    }
  }

  /** A boolean takes a byte there, and none as a field. */
  private void skipElement(int type) throws Unreadable {
    if (type == TRUE || type == FALSE) {
      next();
    } else {
      skip(type);
    }
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

  private static Unreadable broken() {
    return new Unreadable("its footer or a header of a page is no Thrift");
  }
}
