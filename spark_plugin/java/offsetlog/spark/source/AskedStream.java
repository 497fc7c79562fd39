package offsetlog.spark.source;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * Spark's stream of a Python source before 4.2, which can be asked all that the one of 4.2 is asked.
 *
 * <p>Spark's own has four questions, and where a batch ends is one without arguments. So what is
 * known besides, where the batch starts and whether limits hold, is said before it by another of the
 * four: as an offset that is committed, which is JSON and marked, so that Python tells it from one.
 *
 * <p>Invariant: what is said and the question that follows are one step of Spark's stream thread, as
 * all that Spark asks a source is.
 */
final class AskedStream implements SupportsTriggerAvailableNow, MicroBatchStream {
  private final MicroBatchStream stream;

  AskedStream(MicroBatchStream stream) {
    this.stream = stream;
  }

  /** {@code what}: the word that Python's {@code lines.batch_starts} knows, and its arguments. */
  private void say(String what) {
    stream.commit(stream.deserializeOffset("{\"@ask\":" + what + "}"));
  }

  @Override
  public String toString() {
    return stream.toString();
  }

  // --- what Spark's own can not be asked -----------------------------------------------------

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    boolean limited = !(limit instanceof ReadAllAvailable);
    say("{\"start\":" + start.json() + ",\"limited\":" + limited + "}");
    return stream.latestOffset();
  }

  /** Which limits there are Python knows; trigger {@code once} gives another one, which has none. */
  @Override
  public ReadLimit getDefaultReadLimit() {
    return ReadLimit.maxRows(Long.MAX_VALUE);
  }

  @Override
  public Offset reportLatestOffset() {
    say("\"latest\"");
    Offset latest = stream.latestOffset();
    return latest.json().equals("null") ? null : latest;
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    say("\"availableNow\"");
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
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return stream.planInputPartitions(start, end);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return stream.createReaderFactory();
  }

  @Override
  public void commit(Offset end) {
    stream.commit(end);
  }

  @Override
  public void stop() {
    stream.stop();
  }
}
