package offsetlog.spark.source;

import java.util.Arrays;
import offsetlog.segment.BytesColumn;
import org.apache.spark.sql.types.DataTypes;

/** Keys or values. A row's bytes are copied when they are asked for. */
final class BytesVector extends LogVector {
  private final BytesColumn column;

  BytesVector(BytesColumn column) {
    super(DataTypes.BinaryType);
    this.column = column;
  }

  @Override
  public boolean hasNull() {
    return column.hasNull;
  }

  /** At most: it is only asked whether there are any. */
  @Override
  public int numNulls() {
    return column.hasNull ? 1 : 0;
  }

  @Override
  public boolean isNullAt(int row) {
    return column.starts[column.row + row] == BytesColumn.NULL;
  }

  @Override
  public byte[] getBinary(int row) {
    int start = column.starts[column.row + row];
    if (start == BytesColumn.NULL) {
      return null;
    }
    byte[] bytes = column.bytes;
    return Arrays.copyOfRange(bytes, start, start + BytesColumn.length(bytes, start));
  }
}
