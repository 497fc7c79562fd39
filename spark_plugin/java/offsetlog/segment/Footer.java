package offsetlog.segment;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The footer of a segment: where the columns of its row groups lie, and the sums of its row groups.
 *
 * <p>Invariants: the columns have the types of the format and no others; row groups tile the file
 * from byte 4 to the foot; all chunks lie within their row group. What is otherwise is unreadable.
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
  private static final int MAX_GROUPS = 1 << 16;
  private static final int MAX_GROUP_RECORDS = 1 << 22;
  private static final int MAX_GROUP_BYTES = 1 << 29;
  private static final ObjectMapper JSON = new ObjectMapper();

  /** A leaf of the schema by its path, such as {@code headers.list.element.key}. */
  public record Leaf(int number, boolean nullable) {}

  /** Of a leaf in a row group: {@code [start, end)} in the file. */
  record Chunk(int type, int codec, long values, long start, long end) {}

  /** Its records are those from {@code first} on. */
  public record Group(long start, long end, long sum, int records, long first, Chunk[] chunks) {}

  private record Element(String name, int type, int repetition, int children, int converted) {}

  private record RawGroup(long records, List<Chunk> chunks) {}

  public final Map<String, Leaf> leaves = new HashMap<>();
  public final List<Group> groups = new ArrayList<>();
  private final List<Element> schema = new ArrayList<>();
  private final List<RawGroup> rawGroups = new ArrayList<>();
  private final Map<String, String> keyValues = new HashMap<>();
  private long records;

  /** Of the foot: the footer, its length and the magic, whose sum was compared already. */
  public Footer(byte[] foot, long size, long expectedRecords) throws Unreadable {
    int length = foot.length - 8;
    if (length < 0 || little(foot, length) != length || little(foot, length + 4) != MAGIC) {
      throw new Unreadable("its foot is none of Parquet's");
    }
    readFile(new Compact(foot, 0, length));
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
    int outer = in.enter();
    while (in.field()) {
      if (in.id == 2 && in.type == Compact.LIST) {
        for (int n = in.list(); n > 0; n--) {
          schema.add(element(in));
        }
      } else if (in.id == 3 && in.type == Compact.I64) {
        records = in.i64();
      } else if (in.id == 4 && in.type == Compact.LIST) {
        int n = in.list();
        if (n > MAX_GROUPS) {
          throw new Unreadable("it has very many row groups");
        }
        for (; n > 0; n--) {
          rawGroups.add(group(in));
        }
      } else if (in.id == 5 && in.type == Compact.LIST) {
        for (int n = in.list(); n > 0; n--) {
          keyValue(in);
        }
      } else {
        in.skip(in.type);
      }
    }
    in.leave(outer);
  }

  private static Element element(Compact in) throws Unreadable {
    int type = NONE;
    int repetition = REQUIRED;
    int children = 0;
    int converted = NONE;
    String name = "";
    int outer = in.enter();
    while (in.field()) {
      switch (in.id) {
        case 1 -> type = in.i32();
        case 3 -> repetition = in.i32();
        case 4 -> name = in.text();
        case 5 -> children = in.i32();
        case 6 -> converted = in.i32();
        default -> in.skip(in.type);
      }
    }
    in.leave(outer);
    return new Element(name, type, repetition, children, converted);
  }

  private static RawGroup group(Compact in) throws Unreadable {
    long records = 0;
    List<Chunk> chunks = new ArrayList<>();
    int outer = in.enter();
    while (in.field()) {
      if (in.id == 1 && in.type == Compact.LIST) {
        for (int n = in.list(); n > 0; n--) {
          chunks.add(chunk(in));
        }
      } else if (in.id == 3) {
        records = in.i64();
      } else {
        in.skip(in.type);
      }
    }
    in.leave(outer);
    return new RawGroup(records, chunks);
  }

  private static Chunk chunk(Compact in) throws Unreadable {
    Chunk chunk = null;
    int outer = in.enter();
    while (in.field()) {
      if (in.id == 3 && in.type == Compact.STRUCT) {
        chunk = columnMetadata(in);
      } else {
        in.skip(in.type);
      }
    }
    in.leave(outer);
    if (chunk == null) {
      throw new Unreadable("a column is described elsewhere");
    }
    return chunk;
  }

  private static Chunk columnMetadata(Compact in) throws Unreadable {
    int type = NONE;
    int codec = NONE;
    long values = 0;
    long size = 0;
    long start = 0;
    int outer = in.enter();
    while (in.field()) {
      switch (in.id) {
        case 1 -> type = in.i32();
        case 4 -> codec = in.i32();
        case 5 -> values = in.i64();
        case 7 -> size = in.i64();
        case 9 -> start = in.i64();
        case 11 -> throw new Unreadable("it has a dictionary");
        default -> in.skip(in.type);
      }
    }
    in.leave(outer);
    if (start < 4 || size < 0 || start + size < start) {
      throw new Unreadable("a column lies nowhere");
    }
    return new Chunk(type, codec, values, start, start + size);
  }

  private void keyValue(Compact in) throws Unreadable {
    String key = "";
    String value = "";
    int outer = in.enter();
    while (in.field()) {
      switch (in.id) {
        case 1 -> key = in.text();
        case 2 -> value = in.text();
        default -> in.skip(in.type);
      }
    }
    in.leave(outer);
    keyValues.putIfAbsent(key, value);
  }

  // --- what they say -------------------------------------------------------------------------

  /** The columns of a segment, each once and with its type. */
  private void readSchema() throws Unreadable {
    if (schema.isEmpty() || schema.get(0).children < 0) {
      throw new Unreadable("it has no schema");
    }
    int at = 1;
    int leaf = 0;
    for (int left = schema.get(0).children; left > 0; left--) {
      Element column = at < schema.size() ? schema.get(at) : null;
      if (column == null) {
        throw new Unreadable("its schema is cut off");
      }
      boolean isFlat = column.children == 0 && column.repetition <= OPTIONAL;
      boolean known =
          switch (column.name) {
            case "key", "value" -> isFlat && column.type == BYTE_ARRAY && column.converted == NONE;
            case "timestamp" ->
                isFlat && column.type == INT64 && column.converted == TIMESTAMP_MILLIS;
            case "offset" -> isFlat && column.type == INT64 && column.converted == NONE;
            case "headers" -> isListOfHeaders(at);
            default -> false;
          };
      if (!known || leaves.containsKey(column.name)) {
        throw new Unreadable("it has a column of another name or type");
      }
      leaves.put(column.name, new Leaf(leaf++, column.repetition == OPTIONAL));
      if (isFlat) {
        at++;
      } else {
        leaves.put("headers.value", new Leaf(leaf++, true));
        at += 5;
      }
    }
    if (at != schema.size()) {
      throw new Unreadable("its schema is longer than it says");
    }
  }

  /** {@code list<struct<key string, value binary>>}, in which all may be null. */
  private boolean isListOfHeaders(int at) {
    if (at + 5 > schema.size()) {
      return false;
    }
    Element list = schema.get(at);
    Element repeated = schema.get(at + 1);
    Element element = schema.get(at + 2);
    Element key = schema.get(at + 3);
    Element value = schema.get(at + 4);
    return list.children == 1
        && list.repetition == OPTIONAL
        && list.converted == LIST
        && repeated.children == 1
        && repeated.repetition == REPEATED
        && element.children == 2
        && element.repetition == OPTIONAL
        && isNullableBytes(key, "key", UTF8)
        && isNullableBytes(value, "value", NONE);
  }

  private static boolean isNullableBytes(Element leaf, String name, int converted) {
    return leaf.name.equals(name)
        && leaf.children == 0
        && leaf.type == BYTE_ARRAY
        && leaf.repetition == OPTIONAL
        && leaf.converted == converted;
  }

  private void readGroups(long foot) throws Unreadable {
    JsonNode said;
    try {
      said = JSON.readTree(keyValues.getOrDefault("offsetlog.groups", ""));
    } catch (JsonProcessingException error) {
      throw new Unreadable("it does not say its sums");
    }
    if (said == null || !said.isArray() || said.size() != rawGroups.size()) {
      throw new Unreadable("it has other row groups than it says");
    }
    long reached = 4;
    long first = 0;
    for (int i = 0; i < said.size(); i++) {
      JsonNode each = said.get(i);
      RawGroup raw = rawGroups.get(i);
      if (each.size() != 4 || !each.get(0).canConvertToLong() || !each.get(2).isTextual()) {
        throw new Unreadable("it does not say its sums");
      }
      long start = each.get(0).asLong();
      long end = each.get(1).asLong(-1);
      long count = each.get(3).asLong(-1);
      boolean fits = start == reached && end >= start && end <= foot && count == raw.records;
      if (!fits || count < 1 || count > MAX_GROUP_RECORDS || end - start > MAX_GROUP_BYTES) {
        throw new Unreadable("a row group is not where it should be, or very large");
      }
      if (raw.chunks.size() != leafCount()) {
        throw new Unreadable("a row group has other columns");
      }
      for (Chunk chunk : raw.chunks) {
        if (chunk.start < start || chunk.end > end || chunk.values < 0) {
          throw new Unreadable("a column lies outside its row group");
        }
      }
      Chunk[] chunks = raw.chunks.toArray(new Chunk[0]);
      groups.add(new Group(start, end, sum(each.get(2).asText()), (int) count, first, chunks));
      reached = end;
      first += count;
    }
    if (reached != foot || first != records) {
      throw new Unreadable("its row groups do not fill it");
    }
  }

  private int leafCount() {
    return leaves.size();
  }

  /** A sum as it is stored: 16 hex digits. */
  public static long sum(String digits) throws Unreadable {
    if (digits.length() != 16) {
      throw new Unreadable("a sum has other than 16 digits");
    }
    try {
      return Long.parseUnsignedLong(digits, 16);
    } catch (NumberFormatException error) {
      throw new Unreadable("a sum is no number");
    }
  }
}
