package offsetlog.spark.source;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.Iterator;

/**
 * One run of Python for all that it reads of a task: windows of the task's steps, each of which lies
 * between segments that the JVM reads.
 *
 * <p>A run takes some ten milliseconds to begin, as long as the JVM takes for many a segment, so a
 * task of small segments and entries by turns must not begin one for each window. Python reads ahead
 * while the JVM reads segments, as far as the socket between them takes it.
 *
 * <p>Invariants: windows come in order; behind each but the last Python gives an empty batch, and no
 * other is empty.
 */
final class PythonRun {
  /**
   * Steps {@code [first, end)} of the task, and their offsets.
   *
   * @param ranges each a range's number in the plan, its start and its end
   */
  record Window(int first, int end, List<long[]> ranges) {
    @Override
    public String toString() {
      return ranges.stream().map(Arrays::toString).toList().toString();
    }
  }

  private final Iterator<ColumnarBatch> batches;
  private final List<Window> windows;
  private int next;

  /** @param windows at least one */
  PythonRun(Iterator<ColumnarBatch> batches, List<Window> windows) {
    this.batches = batches;
    this.windows = windows;
  }

  /** Whether the next window begins with a step. */
  boolean isAt(int step) {
    return next < windows.size() && windows.get(next).first() == step;
  }

  /**
   * Begin the next window; the one before has been read.
   *
   * @return the step behind it
   */
  int begin() {
    return windows.get(next++).end();
  }

  /** The next rows of the window; null when all are given. */
  ColumnarBatch next() {
    boolean isLast = next == windows.size();
    while (batches.hasNext()) {
      ColumnarBatch batch = batches.next();
      if (batch.numRows() > 0) {
        return batch;
      }
      if (!isLast) {
        return null;
      }
    }
    if (!isLast) {
      throw new IllegalStateException(
          "Python gave " + next + " of " + windows.size() + " parts of a task and ended. Read again,"
              + " or set " + Setting.NAME + " to rows.");
    }
    return null;
  }
}
