package offsetlog.spark.source;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import offsetlog.segment.SegmentReader;

/**
 * What Python planned for one task, as it says it to the JVM (pyspark_offsetlog/source/plans.py):
 * eight bytes of magic and version, the length of the JSON that follows, and behind it what only
 * Python reads.
 *
 * @param version of the offsetlog that planned
 * @param root a folder of this machine, or a URL for a client of Hadoop's; null: neither
 * @param hasOptions whether the filesystem has options that such a client does not know
 * @param rootId of the root that was planned with
 */
record ReadPlan(
    String version, String root, boolean hasOptions, String rootId, List<Range> ranges) {
  static final long MAGIC = 0x4f4c504c414e0001L;
  private static final int HEADER = 12;
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Without pieces: Python looks where its records lie. */
  record Range(String topic, int partition, long start, long end, List<Piece> pieces) {}

  /**
   * Without a segment its records lie in an entry, which Python reads.
   *
   * @param isEmpty whether all its records are gone, so that nobody reads anything
   */
  record Piece(
      long start, long end, long leastTime, long greatestTime, int timeType,
      SegmentReader.Ref segment, boolean isEmpty) {
    /** Whether the file has all of its offsets, as far as that is known here. */
    boolean isInFile() {
      return segment == null || start >= segment.base() && end <= segment.end();
    }
  }

  /** Null where the bytes are no plan of this version. */
  static ReadPlan parse(byte[] blob) throws IOException {
    ByteBuffer header = ByteBuffer.wrap(blob);
    if (blob.length < HEADER || header.getLong() != MAGIC) {
      return null;
    }
    int length = header.getInt();
    if (length < 0 || length > blob.length - HEADER) {
      return null;
    }
    JsonNode plan = JSON.readTree(blob, HEADER, length);
    List<Range> ranges = new ArrayList<>();
    for (JsonNode each : plan.get("ranges")) {
      ranges.add(range(each));
    }
    return new ReadPlan(
        plan.get("version").asText(), plan.get("root").textValue(),
        plan.get("options").asBoolean(), plan.get("id").asText(), ranges);
  }

  /** Whether Hadoop's client for the root may read it, if there is one. */
  boolean isInStore() {
    return root != null && !root.startsWith("/");
  }

  private static Range range(JsonNode said) {
    String folder = said.get("folder").asText();
    int partition = said.get("partition").asInt();
    List<Piece> pieces = new ArrayList<>();
    for (JsonNode each : said.get("pieces")) {
      pieces.add(piece(folder, partition, each));
    }
    return new Range(
        said.get("topic").asText(), partition, said.get("start").asLong(), said.get("end").asLong(),
        pieces);
  }

  /** [start, end, base, end, records, bytes, least, greatest, type of time, ..., segment]. */
  private static Piece piece(String folder, int partition, JsonNode said) {
    JsonNode segment = said.get(12);
    SegmentReader.Ref ref = null;
    boolean isRewritten = said.get(13).asBoolean();
    if (segment.isArray()) {
      long base = said.get(2).asLong();
      long end = said.get(3).asLong();
      String name = String.format("%020d-%s", segment.get(0).asLong(), segment.get(1).asText());
      if (isRewritten) {
        name = String.format("%020d-%020d-%s", base, end, name);
      }
      ref =
          new SegmentReader.Ref(
              folder + "/partition=" + partition + "/" + name + ".parquet",
              base, end, said.get(4).asLong(), segment.get(2).asLong(), segment.get(3).asInt(),
              segment.get(4).asText());
    }
    return new Piece(
        said.get(0).asLong(), said.get(1).asLong(), said.get(6).asLong(), said.get(7).asLong(),
        said.get(8).asInt(), ref, ref == null && isRewritten);
  }
}
