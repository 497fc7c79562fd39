package offsetlog.spark.source;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import offsetlog.spark.format.Executors;
import offsetlog.spark.line.Linkage;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Whether the JVM reads in this session: {@code spark.offsetlog.reader}, and whether this jar fits
 * the Spark and the offsetlog that it is used with.
 *
 * <p>Invariant: what does not fit is one line in the log, and an error only where the session says
 * {@code jvm}.
 */
public final class Setting {
  public static final String NAME = "spark.offsetlog.reader";
  private static final String JVM = "jvm";
  private static final String PYTHON = "python";
  private static final String ROWS = "rows";
  private static final List<String> READERS = List.of("auto", JVM, PYTHON, ROWS);
  private static final Logger LOG = LoggerFactory.getLogger(Setting.class);
  private static final Properties JAR = properties();

  /** Reasons that were logged. */
  private static final Set<String> SAID = ConcurrentHashMap.newKeySet();

  private Setting() {}

  /** The version of offsetlog that this jar is of. */
  public static String version() {
    return JAR.getProperty("version");
  }

  /** Whether this session wants segments to be read and written here. */
  public static boolean reads() {
    return !isPython() && takesColumns();
  }

  /** Whether the session wants Python to read, wherever its rows are taken. */
  static boolean isPython() {
    return reader().equals(PYTHON);
  }

  /** Whether what Python reads is taken here as columns, and not by Spark as rows. */
  static boolean takesColumns() {
    if (reader().equals(ROWS)) {
      return false;
    }
    if (!Executors.haveThisJar(SparkSession.active().sparkContext())) {
      passOver("the executors were not given the jar; give it to Spark with --jars");
      return false;
    }
    return true;
  }

  static boolean fitsSpark() {
    String spark = org.apache.spark.package$.MODULE$.SPARK_VERSION();
    for (String line : JAR.getProperty("lines").split(" ")) {
      if (spark.startsWith(line + ".")) {
        String missing = Linkage.missingOfSpark();
        if (missing != null) {
          passOver("this Spark, " + spark + ", does not have " + missing);
        }
        return missing == null;
      }
    }
    passOver("the jar is made for Spark " + JAR.getProperty("lines") + ", and this is " + spark);
    return false;
  }

  /** Whether what Python planned is for this jar; {@code version} is its offsetlog's. */
  static boolean fits(String version) {
    if (version.equals(version())) {
      return true;
    }
    passOver(
        "the jar is of offsetlog " + version() + ", and Python has " + version);
    return false;
  }

  /** Say why Python reads everything. */
  static void passOver(String why) {
    if (reader().equals(JVM)) {
      throw new IllegalArgumentException(NAME + " is jvm, and the JVM has no reader: " + why + ".");
    }
    if (SAID.add(why)) {
      LOG.info("Python reads segments, not Spark's JVM: {}.", why);
    }
  }

  /** Whether the session wants the JVM to read wherever it can. */
  static boolean isForced() {
    return reader().equals(JVM);
  }

  private static String reader() {
    String reader = SQLConf.get().getConfString(NAME, "auto");
    if (!READERS.contains(reader)) {
      throw new IllegalArgumentException(
          NAME + " is '" + reader + "', which is no reader. Known: " + String.join(", ", READERS));
    }
    return reader;
  }

  private static Properties properties() {
    Properties out = new Properties();
    try (InputStream in = Setting.class.getResourceAsStream("/offsetlog/jar.properties")) {
      out.load(in);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return out;
  }
}
