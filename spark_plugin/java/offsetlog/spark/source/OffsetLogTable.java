package offsetlog.spark.source;

import offsetlog.spark.sink.JvmWriteBuilder;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The Python source's table; its reads and writes are done here where they can. */
final class OffsetLogTable extends PythonTable {
  /** Of the option that reads a table of a log, such as its positions, in place of records. */
  private static final String TABLE = "table";

  private final OffsetLogSource source;
  private final StructType schema;

  OffsetLogTable(OffsetLogSource source, String name, StructType schema) {
    super(source, name, schema);
    this.source = source;
    this.schema = schema;
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return options.containsKey(TABLE) || !Setting.takesColumns()
        ? super.newScanBuilder(options)
        : new LogScanBuilder(source, schema, options);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return JvmWriteBuilder.of(info, super::newWriteBuilder);
  }
}
