package offsetlog.spark.sink;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** Spark's write into a Python sink, with other tasks. */
record JvmWrite(Write python) implements Write {
  @Override
  public String description() {
    return python.description();
  }

  @Override
  public BatchWrite toBatch() {
    return new Batch(python.toBatch());
  }

  @Override
  public StreamingWrite toStreaming() {
    return new Stream(python.toStreaming());
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return python.supportedCustomMetrics();
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return python.reportDriverMetrics();
  }

  @Override
  public String toString() {
    return python.toString();
  }

  private record Batch(BatchWrite python) implements BatchWrite {
    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return TaskWriterFactory.of(python.createBatchWriterFactory(info));
    }

    @Override
    public boolean useCommitCoordinator() {
      return python.useCommitCoordinator();
    }

    @Override
    public void onDataWriterCommit(WriterCommitMessage message) {
      python.onDataWriterCommit(message);
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
      python.commit(messages);
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      python.abort(messages);
    }
  }

  private record Stream(StreamingWrite python) implements StreamingWrite {
    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      return TaskWriterFactory.of(python.createStreamingWriterFactory(info));
    }

    @Override
    public boolean useCommitCoordinator() {
      return python.useCommitCoordinator();
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] messages) {
      python.commit(batch, messages);
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] messages) {
      python.abort(batch, messages);
    }
  }
}
