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

  /** The root if a client of Hadoop's may reach it; else null. */
  final String store;

  /** Whether that client lacks options which fsspec has. */
  final boolean hasOptions;

  /** What Python alone reads. */
  private LogPartition(int index, byte[] pickled) {
    this.index = index;
    this.pickled = pickled;
    plan = null;
    store = null;
    hasOptions = false;
  }

  private LogPartition(int index, byte[] plan, ReadPlan parsed) {
    this.index = index;
    this.plan = plan;
    pickled = null;
    store = parsed.isInStore() ? parsed.root() : null;
    hasOptions = parsed.hasOptions();
  }

  static LogPartition of(int index, byte[] pickled) {
    byte[] plan = Pickles.plan(pickled);
    try {
      ReadPlan parsed = plan == null ? null : ReadPlan.parse(plan);
      if (parsed != null && Setting.fits(parsed.version())) {
        return new LogPartition(index, plan, parsed);
      }
      if (parsed == null) {
        Setting.passOver("Python plans in another way than the jar knows");
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return new LogPartition(index, pickled);
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
