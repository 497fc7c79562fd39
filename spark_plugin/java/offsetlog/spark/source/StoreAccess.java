package offsetlog.spark.source;

import offsetlog.spark.store.HadoopSettings;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * Whether the tasks of a scan read segments here; and whether with Hadoop's client for a store, which
 * is decided on the driver when its first tasks are planned.
 *
 * <p>Invariant: where fsspec has options of its own, which the client does not know, it is used only
 * if the session's reader is {@code jvm}.
 */
final class StoreAccess {
  private final SparkSession session = SparkSession.active();
  private final boolean isForced = Setting.isForced();
  private final boolean reads = !Setting.isPython();
  private boolean isDecided;
  private HadoopSettings settings;

  /** Else Python reads for them. */
  boolean reads() {
    return reads;
  }

  /** What a scan's tasks need for a store; null: Python reads for them. */
  synchronized HadoopSettings settings() {
    return settings;
  }

  /** Decide by the place that tasks are planned for: it is the same for all tasks of a scan. */
  synchronized InputPartition[] decide(InputPartition[] planned) {
    for (InputPartition each : planned) {
      if (reads && !isDecided && each instanceof LogPartition partition && partition.store != null) {
        isDecided = true;
        if (isForced || !partition.hasOptions) {
          settings = HadoopSettings.forRoot(session, partition.store);
        }
      }
    }
    return planned;
  }
}
