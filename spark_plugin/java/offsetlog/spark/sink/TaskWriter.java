package offsetlog.spark.sink;

import java.io.IOException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One task of a write, as {@code sink/task.py} does it: its rows to segments, or into its message
 * when they are few.
 *
 * <p>The first row that can't be written here, and all after it, go to Python's writer, which
 * writes them or says what is wrong. So there is one place that words errors, and this one need
 * not be complete. What was taken before stays taken, and both are in one message.
 */
final class TaskWriter implements DataWriter<InternalRow> {
  private static final String QUERY_ID = "sql.streaming.queryId";
  private static final String BATCH_ID = "streaming.sql.batchId";

  /** What a record weighs besides its key, value and headers. */
  private static final int RECORD_WEIGHT = 32;

  /** Larger ones are not worth the memory that they would take here. */
  private static final int LARGEST_RECORD = 16 << 20;

  /** What a task may hold of rows: at least so much, and this part of the heap for each core. */
  private static final long LEAST_HELD = 8 << 20;

  private static final int PART_OF_HEAP = 16;

  /** The clock is read once for so many rows. */
  private static final int ROWS_A_LOOK = 256;

  private final WritePlan plan;
  private final DataWriter<InternalRow> python;
  private final int task;
  private final String query;
  private final TaskFiles files;
  private final Message staged = new Message();
  private final Map<UTF8String, TopicWriter> topics = new HashMap<>();
  private final Bytes memory = new Bytes(4096);
  private long spread;
  private long records;
  private final long mostHeld;
  private long held;
  private long untilSpread;
  private WriterCommitMessage message;

  TaskWriter(WritePlan plan, int task, DataWriter<InternalRow> python) {
    this.plan = plan;
    this.task = task;
    this.python = python;
    files = new TaskFiles(plan);
    TaskContext context = TaskContext.get();
    query = context == null ? null : context.getLocalProperty(QUERY_ID);
    String batch = context == null ? null : context.getLocalProperty(BATCH_ID);
    spread = plan.spread() + task;
    if (plan.inStream() && batch != null) {
      spread += Long.parseLong(batch);
    }
    untilSpread = plan.bufferBytes();
    Runtime java = Runtime.getRuntime();
    long share = java.maxMemory() / (PART_OF_HEAP * java.availableProcessors());
    mostHeld = Math.min(plan.bufferBytes(), Math.max(LEAST_HELD, share));
  }

  @Override
  public void write(InternalRow row) {
    throw new UnsupportedOperationException("Spark calls writeAll");
  }

  @Override
  public void writeAll(Iterator<InternalRow> rows) throws IOException {
    try {
      InternalRow rest = files.isRootThere() ? take(rows) : first(rows);
      if (rest == null) {
        finish();
      } else {
        leaveToPython(rest, rows);
      }
    } catch (IOException error) {
      throw files.inPythonsWords(error);
    }
  }

  private static InternalRow first(Iterator<InternalRow> rows) {
    return rows.hasNext() ? rows.next() : null;
  }

  /** Takes rows until there is one that can't be written here; null: there was none. */
  private InternalRow take(Iterator<InternalRow> rows) throws IOException {
    Row row = new Row(plan.columns());
    TopicWriter topic = plan.topic() == null ? null : writer(plan.topic());
    int named = plan.columns().topic();
    long now = 0;
    while (rows.hasNext()) {
      InternalRow next = rows.next();
      if (records % ROWS_A_LOOK == 0) {
        now = System.currentTimeMillis();
      }
      if (plan.topic() == null) {
        topic = next.isNullAt(named) ? null : named(next.getUTF8String(named), topic);
      }
      if (topic == null || !row.take(next, now, topic.topic.appendTime())) {
        return next;
      }
      if (row.bytes > LARGEST_RECORD || !topic.add(row, spread)) {
        return next;
      }
      records++;
      weigh(row.bytes + RECORD_WEIGHT);
    }
    return null;
  }

  private void weigh(long weight) throws IOException {
    held += weight;
    untilSpread -= weight;
    if (untilSpread <= 0) {
      untilSpread = plan.bufferBytes();
      spread++;
    }
    if (held >= mostHeld) {
      for (TopicWriter topic : topics.values()) {
        topic.endGroups();
      }
      held = 0;
    }
  }

  /** The writer of a topic that a row names; null: Python knows it, or says what is wrong. */
  private TopicWriter named(UTF8String name, TopicWriter last) {
    if (last != null && last.name.equals(name)) {
      return last;
    }
    TopicWriter writer = topics.get(name);
    if (writer == null) {
      Topic topic = plan.topics().get(name);
      writer = topic == null ? null : writer(topic);
    }
    return writer;
  }

  private TopicWriter writer(Topic topic) {
    Compressor compressor = Compressor.of(topic.compression());
    if (compressor == null) {
      return null;
    }
    TopicWriter writer = new TopicWriter(topic, files, staged, compressor, memory);
    topics.put(writer.name, writer);
    return writer;
  }

  private void finish() throws IOException {
    if (files.isEmpty() && held <= plan.messageLimit(task)) {
      for (TopicWriter topic : topics.values()) {
        topic.handOver();
      }
    } else {
      endSegments();
    }
    message = new PythonWriterCommitMessage(staged.pickle(query, plan.rootId(), null));
  }

  private void endSegments() throws IOException {
    for (TopicWriter topic : topics.values()) {
      topic.endSegments();
    }
    files.settle();
  }

  private void leaveToPython(InternalRow first, Iterator<InternalRow> rows) throws IOException {
    python.writeAll(new WithFirst(first, rows));
    PythonWriterCommitMessage written = (PythonWriterCommitMessage) python.commit();
    if (records == 0) {
      message = written;
      return;
    }
    // Python's rows come after these, so these can't be in the message, where they would be last.
    endSegments();
    message =
        new PythonWriterCommitMessage(
            staged.pickle(query, plan.rootId(), written.pickledMessage()));
  }

  @Override
  public WriterCommitMessage commit() {
    return message;
  }

  @Override
  public void abort() throws IOException {
    python.abort();
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return python.currentMetricsValues();
  }

  @Override
  public void close() throws IOException {
    for (TopicWriter topic : topics.values()) {
      topic.close();
    }
    files.close();
    python.close();
  }

  /** A row before others. */
  private static final class WithFirst implements Iterator<InternalRow> {
    private InternalRow first;
    private final Iterator<InternalRow> rest;

    WithFirst(InternalRow first, Iterator<InternalRow> rest) {
      this.first = first;
      this.rest = rest;
    }

    @Override
    public boolean hasNext() {
      return first != null || rest.hasNext();
    }

    @Override
    public InternalRow next() {
      if (first == null) {
        return rest.next();
      }
      InternalRow row = first;
      first = null;
      return row;
    }
  }
}
