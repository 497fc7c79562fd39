package offsetlog.spark.source;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;

/**
 * {@code format("offsetlog")}, found by Spark before the Python source of the same name.
 *
 * <p>It is that Python source: options, schema, planning and all else that is not overridden here,
 * Spark does in Python as it does without this class. Only what tasks read and write is done here.
 */
public final class OffsetLogSource extends PythonDataSourceV2 implements DataSourceRegister {
  static final String NAME = "offsetlog";

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return Setting.fitsSpark()
        ? new OffsetLogTable(this, NAME, schema)
        : super.getTable(schema, partitioning, properties);
  }
}
