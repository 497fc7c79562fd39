package offsetlog.spark.sink;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import offsetlog.spark.source.Setting;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A write that Python plans and commits, and whose tasks run here where they can. An option tells
 * Python's planner that it is asked for a plan of those, and by which version.
 */
public final class JvmWriteBuilder implements WriteBuilder, SupportsTruncate {
  /** Known to {@code sink/jvm_tasks.py}. */
  private static final String OPTION = "offsetlog.jvm.tasks";

  private final WriteBuilder python;

  private JvmWriteBuilder(WriteBuilder python) {
    this.python = python;
  }

  /** {@code python} makes Spark's builder for a Python sink. */
  public static WriteBuilder of(
      LogicalWriteInfo info, Function<LogicalWriteInfo, WriteBuilder> python) {
    if (!Setting.reads()) {
      return python.apply(info);
    }
    Map<String, String> options = new HashMap<>(info.options().asCaseSensitiveMap());
    options.put(OPTION, Setting.version());
    return new JvmWriteBuilder(python.apply(new Info(info, new CaseInsensitiveStringMap(options))));
  }

  @Override
  public WriteBuilder truncate() {
    return new JvmWriteBuilder(((SupportsTruncate) python).truncate());
  }

  @Override
  public Write build() {
    return new JvmWrite(python.build());
  }

  /** What Spark says of a write, with other options. */
  private record Info(LogicalWriteInfo info, CaseInsensitiveStringMap options)
      implements LogicalWriteInfo {
    @Override
    public String queryId() {
      return info.queryId();
    }

    @Override
    public StructType schema() {
      return info.schema();
    }

    @Override
    public Optional<StructType> rowIdSchema() {
      return info.rowIdSchema();
    }

    @Override
    public Optional<StructType> metadataSchema() {
      return info.metadataSchema();
    }
  }
}
