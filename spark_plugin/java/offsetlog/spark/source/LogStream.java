package offsetlog.spark.source;

import java.util.Arrays;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.AcceptsLatestSeenOffset;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Spark's own stream of a Python source, of which only what tasks read is read by the JVM.
 *
 * <p>Invariants: every question goes through to it, so offsets, groups, resets and limits have one
 * implementation; it looks like it in a query's progress; and it can what that of Spark 4.2 can, on
 * all lines (see {@code AskedStream}), since Spark asks by what a stream can.
 */
abstract class LogStream implements MicroBatchStream {
  private final MicroBatchStream stream;
  private final StructType columns;
  private final Narrowed narrowed;
  private final StoreAccess access;

  LogStream(
      MicroBatchStream stream, StructType columns, Narrowed narrowed, StoreAccess access) {
    this.stream = stream;
    this.columns = columns;
    this.narrowed = narrowed;
    this.access = access;
  }

  static MicroBatchStream of(
      MicroBatchStream stream, StructType columns, Narrowed narrowed, StoreAccess access) {
    if (stream instanceof SupportsTriggerAvailableNow) {
      return new LimitedStream(stream, columns, narrowed, access);
    }
    if (stream instanceof AcceptsLatestSeenOffset) {
      return new LimitedStream(new AskedStream(stream), columns, narrowed, access);
    }
    throw new IllegalStateException("This Spark has another stream for Python sources: " + stream);
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
    return access.decide(
        Arrays.stream(stream.planInputPartitions(start, end))
            .map(PythonStreamingInputPartition.class::cast)
            .map(
                each ->
                    each.blockId().isDefined()
                        ? each
                        : LogPartition.of(each.index(), each.pickedPartition()))
            .toArray(InputPartition[]::new));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    PythonStreamingPartitionReaderFactory rows =
        (PythonStreamingPartitionReaderFactory) stream.createReaderFactory();
    return new LogReaderFactory(
        PythonRead.of(rows), rows, columns, narrowed, access.reads(), access.settings());
  }
}
