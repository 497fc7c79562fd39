package offsetlog.spark.source;

import offsetlog.segment.LongColumn;
import org.apache.spark.sql.types.DataType;

/** Times or stored offsets. */
final class LongVector extends LogVector {
  private final LongColumn column;

  LongVector(DataType type, LongColumn column) {
    super(type);
    this.column = column;
  }

  @Override
  public long getLong(int row) {
    return column.values[column.row + row];
  }
}
