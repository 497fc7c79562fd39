package offsetlog.spark.format;

import java.nio.file.Path;
import java.security.CodeSource;
import org.apache.spark.SparkContext;
import scala.jdk.javaapi.CollectionConverters;

/** Whether the tasks of a session find these classes. */
public final class Executors {
  private Executors() {}

  /**
   * Whether the jar was given to Spark as a jar, which it hands to all executors. One that is only
   * on the driver's class path is not; a local session has no other process.
   */
  public static boolean haveThisJar(SparkContext context) {
    CodeSource source = Executors.class.getProtectionDomain().getCodeSource();
    if (context.isLocal()) {
      return true;
    }
    if (source == null) {
      return false;
    }
    String name = Path.of(source.getLocation().getPath()).getFileName().toString();
    return CollectionConverters.asJava(context.listJars()).stream()
        .anyMatch(jar -> jar.endsWith("/" + name));
  }
}
