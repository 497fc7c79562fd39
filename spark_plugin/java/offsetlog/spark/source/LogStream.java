package offsetlog.spark.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's own stream of a Python source, of which only what tasks read is read by the JVM.
 *
 * <p>Invariants: every question goes through to it, so offsets, groups, resets and limits have one
 * implementation; and it looks like it in a query's progress.
 */
final class LogStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final MicroBatchStream stream;
  private final SupportsTriggerAvailableNow admission;
  private final StructType columns;
  private final Narrowed narrowed;
  private volatile Offset latest;

  LogStream(MicroBatchStream stream, StructType columns, Narrowed narrowed) {
    this.stream = stream;
    this.admission = (SupportsTriggerAvailableNow) stream;
    this.columns = columns;
    this.narrowed = narrowed;
  }

  @Override
  public String toString() {
    return stream.toString();
  }

  // --- what goes through ---------------------------------------------------------------------

  @Override
  public Offset initialOffset() {
    return stream.initialOffset();
  }

  @Override
  public Offset latestOffset() {
    return stream.latestOffset();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return admission.latestOffset(start, limit);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return admission.getDefaultReadLimit();
  }

  @Override
  public Offset reportLatestOffset() {
    latest = admission.reportLatestOffset();
    return latest;
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    admission.prepareForTriggerAvailableNow();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return stream.deserializeOffset(json);
  }

  @Override
  public void commit(Offset end) {
    stream.commit(end);
  }

  @Override
  public void stop() {
    stream.stop();
  }

  // --- what tasks read -----------------------------------------------------------------------

  /** The rows of a small batch come with its plan, as a block; they stay rows. */
  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return Arrays.stream(stream.planInputPartitions(start, end))
        .map(PythonStreamingInputPartition.class::cast)
        .map(
            each ->
                each.blockId().isDefined()
                    ? each
                    : LogPartition.of(each.index(), each.pickedPartition()))
        .toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    PythonStreamingPartitionReaderFactory rows =
        (PythonStreamingPartitionReaderFactory) stream.createReaderFactory();
    return new LogReaderFactory(PythonRead.of(rows), rows, columns, narrowed);
  }

  // --- progress ------------------------------------------------------------------------------

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
