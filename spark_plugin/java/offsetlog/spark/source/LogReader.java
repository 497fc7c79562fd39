package offsetlog.spark.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import offsetlog.segment.Unreadable;
import offsetlog.spark.store.HadoopSettings;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.immutable.Map;

/**
 * One task: the pieces of its plan in order, segments by the JVM, all else by Python.
 *
 * <p>Invariants:
 *
 * <ol>
 *   <li>Rows come in the order of the plan, each once. What the JVM does not read of a range, Python
 *       reads from the offset that was reached to the range's end: it has the one way to plan again
 *       after a rewrite, and the one wording of each error.
 *   <li>Before the JVM reads anything, and again when it has read all, it sees that the root is the
 *       one that the driver planned with; what is otherwise, Python says.
 *   <li>A segment gives as many rows as the log says that it has, or there is an error.
 *   <li>A batch is Spark's until the next call of {@link #next}.
 * </ol>
 */
final class LogReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOG = LoggerFactory.getLogger(LogReader.class);

  private final PythonRead python;
  private final StructType columns;
  private final LogPartition partition;
  private final ReadPlan plan;
  private final List<Steps.Step> steps;
  private final Map<String, SQLMetric> pythonMetrics = PythonCustomMetric.pythonMetrics();
  private final ReadMetrics metrics = new ReadMetrics();
  private final Segments segments;

  private int next;
  private boolean hasBegun;
  private boolean hasChecked;

  /** The step whose segment is read; null: none is. */
  private Steps.Step reading;

  /** How many rows it gave. */
  private long given;

  /** Null until Python is needed. */
  private PythonRun run;

  /** Whether a window of the run is read. */
  private boolean isInWindow;

  private ColumnarBatch batch;

  /**
   * @param reads segments here; else Python reads all
   * @param settings of Hadoop's client for the root; null: there is none
   */
  LogReader(
      PythonRead python,
      StructType columns,
      Narrowed narrowed,
      boolean reads,
      HadoopSettings settings,
      LogPartition partition) {
    this.python = python;
    this.columns = columns;
    this.partition = partition;
    plan = partition.plan == null ? null : partition.readPlan();
    steps = plan == null ? List.of() : Steps.of(plan, narrowed);
    SegmentFiles files = plan == null || !reads ? null : files(settings);
    segments = files == null ? null : new Segments(files, columns, metrics);
  }

  /** Null where the JVM does not reach the root. */
  private SegmentFiles files(HadoopSettings settings) {
    if (plan.isInStore()) {
      return settings == null ? null : new StoreFiles(plan, steps, settings);
    }
    return plan.root() == null ? null : new LocalFiles(plan);
  }

  /** Whether the JVM reads a step; else Python does. */
  private boolean isRead(Steps.Step step) {
    return segments != null && step.isSegment() && segments.areUsable();
  }

  @Override
  public boolean next() throws IOException {
    while (true) {
      if (isInWindow) {
        if (nextOfPython()) {
          return true;
        }
        isInWindow = false;
      } else if (reading != null) {
        if (nextOfSegment()) {
          return true;
        }
      } else if (plan == null && !hasBegun) {
        hasBegun = true;
        run(partition.pickled, List.of(new PythonRun.Window(0, 0, List.of())));
      } else if (next < steps.size()) {
        begin();
      } else if (segments != null && segments.hasRead() && !hasChecked) {
        hasChecked = true;
        if (!segments.isRoot()) {
          // Nothing is left to be read; it looks at the root, and says what is wrong with it.
          run(List.of(new PythonRun.Window(next, next, List.of())));
        }
      } else {
        return false;
      }
    }
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  private void begin() {
    if (run != null && run.isAt(next)) {
      next = run.begin();
      isInWindow = true;
      return;
    }
    Steps.Step step = steps.get(next);
    if (!isRead(step)) {
      readByPython(null);
      return;
    }
    next++;
    try {
      segments.open(step);
      reading = step;
      given = 0;
    } catch (IOException | Unreadable why) {
      leave(step, step.start(), why);
    }
  }

  private boolean nextOfSegment() throws IOException {
    Steps.Step step = reading;
    try {
      batch = segments.next();
      if (batch != null) {
        metrics.rowsOfJvm += batch.numRows();
        given += batch.numRows();
        return true;
      }
      reading = null;
    } catch (IOException | Unreadable why) {
      reading = null;
      leave(step, segments.reached(), why);
      return false;
    }
    long records = step.records();
    if (records >= 0 && given != records) {
      throw new IllegalStateException(
          String.format(
              "%s gave %d records of offsets %d to %d of %s-%d, and the log says that it has %d."
                  + " Run 'offsetlog verify' on the topic.",
              step.piece().segment().name(), given, step.start(), step.end(),
              step.range().topic(), step.range().partition(), records));
    }
    return false;
  }

  /** Python reads the rest of the step's range. */
  private void leave(Steps.Step step, long reached, Exception why) {
    LOG.info(
        "{}-{} is left to Python from offset {}: {}.",
        step.range().topic(), step.range().partition(), reached, why.toString());
    readByPython(new Steps.Step(step.number(), step.range(), null, reached, step.end()));
  }

  /**
   * Python begins here, and goes on behind segments that the JVM reads. What it was to give by an
   * earlier run is given by this one; that one ends with the task.
   *
   * @param left of a step, and with it the rest of its range; null: nothing is left
   */
  private void readByPython(Steps.Step left) {
    List<PythonRun.Window> windows = new ArrayList<>();
    List<long[]> ranges = new ArrayList<>();
    int first = next;
    int at = next;
    if (left != null) {
      add(ranges, left);
      while (at < steps.size() && steps.get(at).number() == left.number()) {
        add(ranges, steps.get(at++));
      }
    }
    do {
      while (at < steps.size() && !isRead(steps.get(at))) {
        add(ranges, steps.get(at++));
      }
      windows.add(new PythonRun.Window(first, at, ranges));
      while (at < steps.size() && isRead(steps.get(at))) {
        at++;
      }
      first = at;
      ranges = new ArrayList<>();
    } while (at < steps.size());
    run(windows);
  }

  /** Steps of a range that touch are one. */
  private static void add(List<long[]> ranges, Steps.Step step) {
    long[] last = ranges.isEmpty() ? null : ranges.get(ranges.size() - 1);
    if (last != null && last[0] == step.number() && last[2] == step.start()) {
      last[2] = step.end();
    } else {
      ranges.add(new long[] {step.number(), step.start(), step.end()});
    }
  }

  private void run(List<PythonRun.Window> windows) {
    String names = String.join("\",\"", columns.fieldNames());
    String json =
        "{\"windows\":" + windows + ",\"columns\":["
            + (names.isEmpty() ? "" : "\"" + names + "\"") + "]}";
    run(Pickles.fromPlan(partition.plan, json), windows);
  }

  private void run(byte[] pickled, List<PythonRun.Window> windows) {
    run = new PythonRun(python.batches(pickled, pythonMetrics), windows);
    next = run.begin();
    isInWindow = true;
  }

  /** The columns that are wanted of those that Python gives. */
  private boolean nextOfPython() {
    ColumnarBatch rows = run.next();
    if (rows == null) {
      return false;
    }
    ArrowColumnVector all = (ArrowColumnVector) rows.column(0);
    ColumnVector[] wanted = new ColumnVector[columns.length()];
    for (int i = 0; i < wanted.length; i++) {
      int at = python.schema().fieldIndex(columns.fields()[i].name());
      wanted[i] = GivenVector.of(all.getChild(at));
    }
    batch = new ColumnarBatch(wanted, rows.numRows());
    metrics.rowsOfPython += rows.numRows();
    return true;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    List<CustomTaskMetric> ofPython = new ArrayList<>();
    pythonMetrics.foreach(
        each -> ofPython.add(ReadMetrics.value(each._1(), each._2().value())));
    return Stream.concat(ofPython.stream(), Arrays.stream(metrics.values()))
        .toArray(CustomTaskMetric[]::new);
  }

  @Override
  public void close() throws IOException {
    if (segments != null) {
      segments.close();
    }
  }
}
