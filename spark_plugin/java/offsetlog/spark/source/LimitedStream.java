package offsetlog.spark.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Iterator;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** The stream that has limits, and knows the end of the log. */
final class LimitedStream extends LogStream
    implements SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final SupportsTriggerAvailableNow stream;
  private volatile Offset latest;

  LimitedStream(
      MicroBatchStream stream, StructType columns, Narrowed narrowed, StoreAccess access) {
    super(stream, columns, narrowed, access);
    this.stream = (SupportsTriggerAvailableNow) stream;
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return stream.latestOffset(start, limit);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return stream.getDefaultReadLimit();
  }

  @Override
  public Offset reportLatestOffset() {
    latest = stream.reportLatestOffset();
    return latest;
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    stream.prepareForTriggerAvailableNow();
  }

  /** How far the query is behind, in the words of Spark's Kafka source. */
  @Override
  public Map<String, String> metrics(Optional<Offset> consumed) {
    Offset end = latest;
    if (end == null || consumed.isEmpty()) {
      return Map.of();
    }
    LongSummaryStatistics behind = behind(consumed.get().json(), end.json());
    return behind.getCount() == 0
        ? Map.of()
        : Map.of(
            "minOffsetsBehindLatest", String.valueOf(behind.getMin()),
            "maxOffsetsBehindLatest", String.valueOf(behind.getMax()),
            "avgOffsetsBehindLatest", String.valueOf(behind.getAverage()));
  }

  private static LongSummaryStatistics behind(String consumed, String latest) {
    LongSummaryStatistics out = new LongSummaryStatistics();
    try {
      JsonNode from = JSON.readTree(consumed);
      JsonNode ends = JSON.readTree(latest);
      for (Iterator<String> topics = ends.fieldNames(); topics.hasNext(); ) {
        String topic = topics.next();
        for (Iterator<String> each = ends.get(topic).fieldNames(); each.hasNext(); ) {
          String partition = each.next();
          JsonNode at = from.path(topic).path(partition);
          if (at.isIntegralNumber()) {
            out.accept(Math.max(0, ends.get(topic).get(partition).asLong() - at.asLong()));
          }
        }
      }
    } catch (JsonProcessingException error) {
      return new LongSummaryStatistics();
    }
    return out;
  }
}
