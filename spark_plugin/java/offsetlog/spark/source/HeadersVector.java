package offsetlog.spark.source;

import java.util.Arrays;
import offsetlog.segment.BytesColumn;
import offsetlog.segment.HeadersColumn;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.unsafe.types.UTF8String;

/** {@code array<struct<key string, value binary>>}: the headers of each row. */
final class HeadersVector extends LogVector {
  private final HeadersColumn column;
  private final Elements elements;

  HeadersVector(DataType type, HeadersColumn column) {
    super(type);
    this.column = column;
    elements = new Elements((StructType) ((ArrayType) type).elementType(), column);
  }

  @Override
  public boolean hasNull() {
    return true;
  }

  @Override
  public int numNulls() {
    return 1;
  }

  @Override
  public boolean isNullAt(int row) {
    return column.isNull[column.row + row];
  }

  @Override
  public ColumnarArray getArray(int row) {
    int first = column.firsts[column.row + row];
    return new ColumnarArray(elements, first, column.firsts[column.row + row + 1] - first);
  }

  /** All elements of the row group, by their numbers there. */
  private static final class Elements extends LogVector {
    private final Leaf[] leaves;

    Elements(StructType type, HeadersColumn column) {
      super(type);
      leaves =
          Arrays.stream(type.fieldNames()).map(name -> leaf(name, column)).toArray(Leaf[]::new);
    }

    private static Leaf leaf(String name, HeadersColumn column) {
      return switch (name) {
        case "key" -> new Leaf(DataTypes.StringType, column.names);
        case "value" -> new Leaf(DataTypes.BinaryType, column.values);
        default -> throw new IllegalArgumentException("a header has no " + name);
      };
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return leaves[ordinal];
    }
  }

  private static final class Leaf extends LogVector {
    private final HeadersColumn.Leaf leaf;

    Leaf(DataType type, HeadersColumn.Leaf leaf) {
      super(type);
      this.leaf = leaf;
    }

    @Override
    public boolean hasNull() {
      return true;
    }

    @Override
    public boolean isNullAt(int element) {
      return leaf.starts[element] == BytesColumn.NULL;
    }

    @Override
    public byte[] getBinary(int element) {
      int start = leaf.starts[element];
      if (start == BytesColumn.NULL) {
        return null;
      }
      return Arrays.copyOfRange(leaf.bytes, start, start + BytesColumn.length(leaf.bytes, start));
    }

    @Override
    public UTF8String getUTF8String(int element) {
      int start = leaf.starts[element];
      if (start == BytesColumn.NULL) {
        return null;
      }
      return UTF8String.fromBytes(leaf.bytes, start, BytesColumn.length(leaf.bytes, start));
    }
  }
}
