package offsetlog.spark.store;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.sql.SparkSession;

/**
 * What a session tells Hadoop's clients, as it travels to tasks: all but Hadoop's own defaults and
 * what is Spark's alone.
 */
public record HadoopSettings(HashMap<String, String> values) implements Serializable {
  private static final String DEFAULTS = "-default.xml";
  private static final String OF_SPARK = "spark.";

  /** Those of a session; null where it has no client for the scheme of {@code root}. */
  public static HadoopSettings forRoot(SparkSession session, String root) {
    if (!(session instanceof org.apache.spark.sql.classic.SparkSession classic)) {
      return null;
    }
    Configuration all = classic.sessionState().newHadoopConf();
    all.setClassLoader(Thread.currentThread().getContextClassLoader());
    try {
      FileSystem.getFileSystemClass(root.substring(0, root.indexOf(':')), all);
    } catch (Exception | LinkageError none) {
      return null;
    }
    HashMap<String, String> values = new HashMap<>();
    for (Map.Entry<String, String> each : all) {
      if (!each.getKey().startsWith(OF_SPARK) && !isDefault(all, each.getKey())) {
        values.put(each.getKey(), each.getValue());
      }
    }
    return new HadoopSettings(values);
  }

  private static boolean isDefault(Configuration all, String name) {
    String[] sources = all.getPropertySources(name);
    return sources != null && sources.length > 0 && sources[sources.length - 1].endsWith(DEFAULTS);
  }

  /** The same in this process, with classes as this thread finds them. */
  Configuration configuration() {
    Configuration out = new Configuration();
    out.setClassLoader(Thread.currentThread().getContextClassLoader());
    values.forEach(out::set);
    return out;
  }

  /** Never shown: it may hold secrets. */
  @Override
  public String toString() {
    return "HadoopSettings";
  }
}
