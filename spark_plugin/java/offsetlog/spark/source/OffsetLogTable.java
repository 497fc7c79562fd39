package offsetlog.spark.source;

import java.util.List;
import offsetlog.spark.sink.JvmWriteBuilder;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The Python source's table; its reads and writes are done here where they can. */
final class OffsetLogTable extends PythonTable {
  /** Of the option that reads a table of a log, such as its positions, in place of records. */
  private static final String TABLE = "table";

  private static final List<String> COLUMNS =
      List.of(
          "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers");

  private final OffsetLogSource source;
  private final StructType schema;

  OffsetLogTable(OffsetLogSource source, String name, StructType schema) {
    super(source, name, schema);
    this.source = source;
    this.schema = schema;
  }

  /** The column that a name in any case means; another name as it is. */
  static String column(String name) {
    return COLUMNS.stream().filter(name::equalsIgnoreCase).findFirst().orElse(name);
  }

  /** Python can't see this setting, and takes names in any case. */
  private void checkCase() {
    if (!SQLConf.get().caseSensitiveAnalysis()) {
      return;
    }
    for (String name : schema.fieldNames()) {
      if (!column(name).equals(name)) {
        throw new IllegalArgumentException(
            String.format(
                "The schema has a column '%s', which a log does not have. Did you mean '%s'? "
                    + "(spark.sql.caseSensitive is true.)",
                name, column(name)));
      }
    }
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    if (!options.containsKey(TABLE)) {
      checkCase();
    }
    return options.containsKey(TABLE) || !Setting.takesColumns()
        ? super.newScanBuilder(options)
        : new LogScanBuilder(source, schema, options);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return JvmWriteBuilder.of(info, super::newWriteBuilder);
  }
}
