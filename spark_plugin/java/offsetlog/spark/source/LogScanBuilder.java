package offsetlog.spark.source;

import java.util.Arrays;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What one query wants of a log: some of its columns, and what its filters leave.
 *
 * <p>Invariants: both are kept here and in the scan, never in the source, which other queries of the
 * same frame share; and a column is read whole or not at all.
 */
final class LogScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownFilters {
  private static final Filter[] NONE = {};

  private final OffsetLogSource source;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private StructType columns;
  private Narrowed narrowed = Narrowed.NOT;

  LogScanBuilder(OffsetLogSource source, StructType schema, CaseInsensitiveStringMap options) {
    this.source = source;
    this.schema = schema;
    this.options = options;
    columns = schema;
  }

  /**
   * Spark asks for parts of columns too, such as the values of headers without their names. It takes
   * more than it asked for, and picks the part by its name.
   */
  @Override
  public void pruneColumns(StructType required) {
    columns =
        new StructType(
            Arrays.stream(required.fieldNames()).map(schema::apply).toArray(StructField[]::new));
  }

  /** All are given back: they only narrow what is read, and Spark applies them again. */
  @Override
  public Filter[] pushFilters(Filter[] filters) {
    narrowed = Narrowed.by(filters);
    return filters;
  }

  @Override
  public Filter[] pushedFilters() {
    return NONE;
  }

  @Override
  public Scan build() {
    return new LogScan(source, schema, columns, options, narrowed);
  }
}
