package offsetlog.segment;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The footer of a segment: where the columns of its row groups lie, and the sums of its row groups.
 *
 * <p>Invariants: it has what Parquet demands and what our writers write, and nothing else; the columns
 * have the types of the format and no others; row groups tile the file from byte 4 to the foot; all
 * chunks lie within their row group. What is otherwise is unreadable.
 */
public final class Footer {
  /** Physical types, encodings and codecs are Parquet's own numbers. */
  private static final int INT64 = 2;

  private static final int BYTE_ARRAY = 6;
  private static final int REQUIRED = 0;
  private static final int OPTIONAL = 1;
  private static final int REPEATED = 2;
  private static final int TIMESTAMP_MILLIS = 9;
  private static final int LIST = 3;
  private static final int UTF8 = 0;
  private static final int NONE = -1;

  /** Logical types, by their numbers in Parquet's union. */
  private static final int LOGICAL_STRING = 1;

  private static final int LOGICAL_LIST = 3;
  private static final int LOGICAL_TIME = 8;
  private static final int MAX_GROUPS = 1 << 16;
  private static final int MAX_GROUP_RECORDS = 1 << 22;
  private static final int MAX_GROUP_BYTES = 1 << 29;

  /** A leaf of the schema by its path, such as {@code headers.list.element.key}. */
  public record Leaf(int number, boolean nullable) {}

  /**
   * Of a leaf in a row group: {@code [start, end)} in the file.
   *
   * @param greatest of its values, as its statistics have it; null: they don't
   */
  record Chunk(
      String path, int type, int codec, long values, long start, long end, byte[] greatest) {}

  /** Its records are those from {@code first} on. */
  public record Group(long start, long end, long sum, int records, long first, Chunk[] chunks) {}

  private record Element(
      String name, int type, int repetition, int children, int converted, int logical) {
    boolean isA(int type, int converted, int logical) {
      return this.type == type
          && this.converted == converted
          && (this.logical == NONE || this.logical == logical);
    }
  }

  private record RawGroup(long records, List<Chunk> chunks) {}

  public final Map<String, Leaf> leaves = new HashMap<>();
  public final List<Group> groups = new ArrayList<>();
  private final List<Element> schema = new ArrayList<>();
  private final List<RawGroup> rawGroups = new ArrayList<>();
  private final Map<String, String> keyValues = new HashMap<>();
  private final List<String> paths = new ArrayList<>();
  private final List<Integer> types = new ArrayList<>();
  private int orders = NONE;
  private long records;

  /** Of the foot: the footer, its length and the magic, whose sum was compared already. */
  public Footer(byte[] foot, long size, long expectedRecords) throws Unreadable {
    int length = foot.length - 8;
    if (length < 0 || little(foot, length) != length || little(foot, length + 4) != MAGIC) {
      throw new Unreadable("its foot is none of Parquet's");
    }
    Compact in = new Compact(foot, 0, length);
    readFile(in);
    if (in.position() != length) {
      throw new Unreadable("its footer ends before its end");
    }
    if (!"1".equals(keyValues.get("offsetlog.version")) || records != expectedRecords) {
      throw new Unreadable("it is of another version, or of another number of records");
    }
    readSchema();
    readGroups(size - foot.length);
  }

  static final int MAGIC = 0x31524150;

  static int little(byte[] data, int at) {
    return (data[at] & 0xFF)
        | (data[at + 1] & 0xFF) << 8
        | (data[at + 2] & 0xFF) << 16
        | data[at + 3] << 24;
  }

  // --- Parquet's structs ---------------------------------------------------------------------

  private void readFile(Compact in) throws Unreadable {
    in.enter();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> in.i32();
        case 2 -> {
          for (int n = in.list(Compact.STRUCT); n > 0; n--) {
            schema.add(element(in));
          }
        }
        case 3 -> records = in.count();
        case 4 -> {
          int n = in.list(Compact.STRUCT);
          if (n > MAX_GROUPS) {
            throw new Unreadable("it has very many row groups");
          }
          for (; n > 0; n--) {
            rawGroups.add(group(in));
          }
        }
        case 5 -> {
          for (int n = in.list(Compact.STRUCT); n > 0; n--) {
            keyValue(in);
          }
        }
        case 6 -> in.bytes();
        case 7 -> {
          orders = in.list(Compact.STRUCT);
          for (int n = orders; n > 0; n--) {
            union(in, 1);
          }
        }
        default -> throw Compact.unknown();
      }
    }
    in.leave(Compact.fields(1, 2, 3, 4));
  }

  /** A struct with one field, which is an empty struct. */
  private static void union(Compact in, int id) throws Unreadable {
    in.enter();
    if (!in.field() || in.id() != id) {
      throw Compact.unknown();
    }
    in.enterField();
    in.leaveEmpty();
    in.leaveEmpty();
  }

  private static Element element(Compact in) throws Unreadable {
    int type = NONE;
    int repetition = REQUIRED;
    int children = NONE;
    int converted = NONE;
    int logical = NONE;
    String name = "";
    in.enter();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> type = in.count32();
        case 3 -> repetition = in.count32();
        case 4 -> name = in.text();
        case 5 -> children = in.count32();
        case 6 -> converted = in.count32();
        case 9 -> in.i32();
        case 10 -> logical = logical(in);
        default -> throw Compact.unknown();
      }
    }
    in.leave(Compact.fields(4));
    return new Element(name, type, repetition, children, converted, logical);
  }

  private static int logical(Compact in) throws Unreadable {
    in.enterField();
    if (!in.field()) {
      throw Compact.unknown();
    }
    int logical = in.id();
    in.enterField();
    if (logical == LOGICAL_TIME) {
      utcMillis(in);
    } else if (logical != LOGICAL_STRING && logical != LOGICAL_LIST) {
      throw Compact.unknown();
    }
    in.leaveEmpty();
    in.leaveEmpty();
    return logical;
  }

  private static void utcMillis(Compact in) throws Unreadable {
    if (!in.field() || in.id() != 1 || !in.truth() || !in.field() || in.id() != 2) {
      throw Compact.unknown();
    }
    in.expect(Compact.STRUCT);
    union(in, 1);
  }

  private static RawGroup group(Compact in) throws Unreadable {
    long records = 0;
    List<Chunk> chunks = new ArrayList<>();
    in.enter();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> {
          for (int n = in.list(Compact.STRUCT); n > 0; n--) {
            chunks.add(chunk(in));
          }
        }
        case 2, 5, 6 -> in.count();
        case 3 -> records = in.count();
        case 7 -> {
          in.expect(Compact.I16);
          in.number();
        }
        default -> throw Compact.unknown();
      }
    }
    in.leave(Compact.fields(1, 2, 3));
    return new RawGroup(records, chunks);
  }

  private static Chunk chunk(Compact in) throws Unreadable {
    Chunk chunk = null;
    in.enter();
    while (in.field()) {
      switch (in.id()) {
        case 2 -> in.count();
        case 3 -> chunk = columnMetadata(in);
        default -> throw Compact.unknown();
      }
    }
    in.leave(Compact.fields(2, 3));
    return chunk;
  }

  private static Chunk columnMetadata(Compact in) throws Unreadable {
    String path = "";
    int type = NONE;
    int codec = NONE;
    long values = 0;
    long size = 0;
    long start = 0;
    byte[] greatest = null;
    in.enterField();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> type = in.count32();
        case 2 -> {
          for (int n = in.list(Compact.I32); n > 0; n--) {
            in.number();
          }
        }
        case 3 -> path = path(in);
        case 4 -> codec = in.count32();
        case 5 -> values = in.count();
        case 6 -> in.count();
        case 7 -> size = in.count();
        case 9 -> start = in.count();
        case 12 -> greatest = statistics(in);
        case 13 -> encodingCounts(in);
        case 16 -> sizes(in);
        // A dictionary, an index, a filter: nothing that our writers write.
        default -> throw Compact.unknown();
      }
    }
    in.leave(Compact.fields(1, 2, 3, 4, 5, 6, 7, 9));
    if (start < 4 || start + size < start) {
      throw new Unreadable("a column lies nowhere");
    }
    return new Chunk(path, type, codec, values, start, start + size, greatest);
  }

  private static String path(Compact in) throws Unreadable {
    List<String> parts = new ArrayList<>();
    for (int n = in.list(Compact.BINARY); n > 0; n--) {
      parts.add(new String(in.element(), java.nio.charset.StandardCharsets.UTF_8));
    }
    return String.join(".", parts);
  }

  /** The greatest value, or null. */
  static byte[] statistics(Compact in) throws Unreadable {
    byte[] old = null;
    byte[] greatest = null;
    in.enterField();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> old = in.bytes();
        case 2, 6 -> in.bytes();
        case 3, 4 -> in.count();
        case 5 -> greatest = in.bytes();
        case 7, 8 -> in.truth();
        default -> throw Compact.unknown();
      }
    }
    in.leave(0);
    return greatest == null ? old : greatest;
  }

  /** How many pages there are of a kind and an encoding. */
  private static void encodingCounts(Compact in) throws Unreadable {
    for (int n = in.list(Compact.STRUCT); n > 0; n--) {
      in.enter();
      while (in.field()) {
        if (in.id() > 3) {
          throw Compact.unknown();
        }
        in.i32();
      }
      in.leave(Compact.fields(1, 2, 3));
    }
  }

  /** What the values of a column take, and how often there is each level. */
  private static void sizes(Compact in) throws Unreadable {
    in.enterField();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> in.count();
        case 2, 3 -> {
          for (int n = in.list(Compact.I64); n > 0; n--) {
            in.number();
          }
        }
        default -> throw Compact.unknown();
      }
    }
    in.leave(0);
  }

  private void keyValue(Compact in) throws Unreadable {
    String key = "";
    String value = "";
    in.enter();
    while (in.field()) {
      switch (in.id()) {
        case 1 -> key = in.text();
        case 2 -> value = in.text();
        default -> throw Compact.unknown();
      }
    }
    in.leave(Compact.fields(1));
    if (keyValues.put(key, value) != null) {
      throw new Unreadable("it says twice what it says of itself");
    }
  }

  // --- what they say -------------------------------------------------------------------------

  /** The columns of a segment, each once and with its type. */
  private void readSchema() throws Unreadable {
    if (schema.isEmpty() || schema.get(0).type != NONE || schema.get(0).children < 0) {
      throw new Unreadable("it has no schema");
    }
    int at = 1;
    for (int left = schema.get(0).children; left > 0; left--) {
      Element column = at < schema.size() ? schema.get(at) : null;
      if (column == null) {
        throw new Unreadable("its schema is cut off");
      }
      boolean isFlat = column.children == NONE && column.repetition <= OPTIONAL;
      boolean known =
          switch (column.name) {
            case "key", "value" -> isFlat && column.isA(BYTE_ARRAY, NONE, NONE);
            case "timestamp" -> isFlat && column.isA(INT64, TIMESTAMP_MILLIS, LOGICAL_TIME);
            case "offset" -> isFlat && column.isA(INT64, NONE, NONE);
            case "headers" -> isListOfHeaders(at);
            default -> false;
          };
      if (!known || leaves.containsKey(column.name)) {
        throw new Unreadable("it has a column of another name or type");
      }
      if (isFlat) {
        addLeaf(column.name, column.name, column);
        at++;
      } else {
        addLeaf("headers", "headers.list.element.key", schema.get(at + 3));
        addLeaf("headers.value", "headers.list.element.value", schema.get(at + 4));
        at += 5;
      }
    }
    if (at != schema.size() || (orders != NONE && orders != leaves.size())) {
      throw new Unreadable("its schema is longer than it says");
    }
    if (!leaves.containsKey("value") || !leaves.containsKey("timestamp")) {
      throw new Unreadable("it has no values or no times");
    }
  }

  private void addLeaf(String name, String path, Element leaf) {
    leaves.put(name, new Leaf(leaves.size(), leaf.repetition == OPTIONAL));
    paths.add(path);
    types.add(leaf.type);
  }

  /** {@code list<struct<key string, value binary>>}, in which all may be null. */
  private boolean isListOfHeaders(int at) {
    if (at + 5 > schema.size()) {
      return false;
    }
    Element list = schema.get(at);
    Element repeated = schema.get(at + 1);
    Element element = schema.get(at + 2);
    return isGroup(list, "headers", 1, OPTIONAL)
        && list.isA(NONE, LIST, LOGICAL_LIST)
        && isGroup(repeated, "list", 1, REPEATED)
        && repeated.isA(NONE, NONE, NONE)
        && isGroup(element, "element", 2, OPTIONAL)
        && element.isA(NONE, NONE, NONE)
        && isNullableBytes(schema.get(at + 3), "key", UTF8, LOGICAL_STRING)
        && isNullableBytes(schema.get(at + 4), "value", NONE, NONE);
  }

  private static boolean isGroup(Element group, String name, int children, int repetition) {
    return group.name.equals(name)
        && group.children == children
        && group.repetition == repetition;
  }

  private static boolean isNullableBytes(Element leaf, String name, int converted, int logical) {
    return leaf.name.equals(name)
        && leaf.children == NONE
        && leaf.repetition == OPTIONAL
        && leaf.isA(BYTE_ARRAY, converted, logical);
  }

  private void readGroups(long foot) throws Unreadable {
    Sums said = new Sums(keyValues.getOrDefault("offsetlog.groups", ""));
    long reached = 4;
    long first = 0;
    for (RawGroup raw : rawGroups) {
      said.next();
      boolean fits = said.start == reached && said.end >= said.start && said.end <= foot;
      long size = said.end - said.start;
      if (!fits || said.records != raw.records || size > MAX_GROUP_BYTES) {
        throw new Unreadable("a row group is not where it should be, or very large");
      }
      if (said.records < 1 || said.records > MAX_GROUP_RECORDS) {
        throw new Unreadable("a row group has no or very many records");
      }
      check(raw.chunks, said.start, said.end);
      Chunk[] chunks = raw.chunks.toArray(new Chunk[0]);
      groups.add(
          new Group(said.start, said.end, sum(said.sum), (int) said.records, first, chunks));
      reached = said.end;
      first += said.records;
    }
    said.end();
    if (reached != foot || first != records) {
      throw new Unreadable("its row groups do not fill it");
    }
  }

  /** That a row group has the columns of the schema, each within its bytes. */
  private void check(List<Chunk> chunks, long start, long end) throws Unreadable {
    if (chunks.size() != paths.size()) {
      throw new Unreadable("a row group has other columns");
    }
    for (int i = 0; i < chunks.size(); i++) {
      Chunk chunk = chunks.get(i);
      if (chunk.type != types.get(i) || !chunk.path.equals(paths.get(i))) {
        throw new Unreadable("a row group has other columns");
      }
      if (chunk.start < start || chunk.end > end) {
        throw new Unreadable("a column lies outside its row group");
      }
    }
  }

  /** A sum as it is stored: 16 hex digits. */
  public static long sum(String digits) throws Unreadable {
    boolean fits = digits.length() == 16;
    for (int i = 0; fits && i < 16; i++) {
      char digit = digits.charAt(i);
      fits = digit >= '0' && digit <= '9' || digit >= 'a' && digit <= 'f';
    }
    if (!fits) {
      throw new Unreadable("a sum is not 16 hex digits");
    }
    return Long.parseUnsignedLong(digits, 16);
  }
}
