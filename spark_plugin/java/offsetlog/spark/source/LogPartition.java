package offsetlog.spark.source;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * What one task reads.
 *
 * <p>It has either a plan that the JVM understands, or the pickled partition for Python as it came.
 */
final class LogPartition implements InputPartition {
  private static final long serialVersionUID = 1;

  final int index;
  final byte[] plan;
  final byte[] pickled;

  private LogPartition(int index, byte[] plan, byte[] pickled) {
    this.index = index;
    this.plan = plan;
    this.pickled = pickled;
  }

  static LogPartition of(int index, byte[] pickled) {
    byte[] plan = Pickles.plan(pickled);
    try {
      ReadPlan parsed = plan == null ? null : ReadPlan.parse(plan);
      if (parsed != null && Setting.fits(parsed.version())) {
        return new LogPartition(index, plan, null);
      }
      if (parsed == null) {
        Setting.passOver("Python plans in another way than the jar knows");
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return new LogPartition(index, null, pickled);
  }

  ReadPlan readPlan() {
    try {
      return ReadPlan.parse(plan);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Whether filters leave anything of it, as far as the plan says. */
  boolean hasAny(Narrowed narrowed) {
    return plan == null
        || narrowed == Narrowed.NOT
        || !Steps.of(readPlan(), narrowed).isEmpty();
  }
}
