package offsetlog.spark.source;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column without nulls that Python gave. Spark's own vector looks for a null at each row, twice.
 *
 * <p>Invariant: memory is read by Arrow's buffers alone, which know their bounds.
 */
abstract class GivenVector extends LogVector {
  private GivenVector(DataType type) {
    super(type);
  }

  /** The column as it is to be read: itself, if it has nulls or is of another kind. */
  static ColumnVector of(ArrowColumnVector given) {
    ValueVector vector = given.getValueVector();
    if (vector.getNullCount() > 0) {
      return given;
    }
    if (vector instanceof VarBinaryVector || vector instanceof VarCharVector) {
      return new Bytes(given.dataType(), vector.getOffsetBuffer(), vector.getDataBuffer());
    }
    boolean isNumber =
        vector instanceof IntVector
            || vector instanceof BigIntVector
            || vector instanceof TimeStampMicroTZVector;
    return isNumber ? new Numbers(given.dataType(), vector.getDataBuffer()) : given;
  }

  /** Numbers, which are read as long as the column's type is. */
  private static final class Numbers extends GivenVector {
    private final ArrowBuf data;

    Numbers(DataType type, ArrowBuf data) {
      super(type);
      this.data = data;
    }

    @Override
    public int getInt(int row) {
      return data.getInt((long) row * Integer.BYTES);
    }

    @Override
    public long getLong(int row) {
      return data.getLong((long) row * Long.BYTES);
    }
  }

  /** Bytes, or text. */
  private static final class Bytes extends GivenVector {
    private final ArrowBuf ends;
    private final ArrowBuf data;

    Bytes(DataType type, ArrowBuf ends, ArrowBuf data) {
      super(type);
      this.ends = ends;
      this.data = data;
    }

    @Override
    public byte[] getBinary(int row) {
      int start = ends.getInt((long) row * Integer.BYTES);
      byte[] out = new byte[ends.getInt((row + 1L) * Integer.BYTES) - start];
      data.getBytes(start, out);
      return out;
    }

    @Override
    public UTF8String getUTF8String(int row) {
      return UTF8String.fromBytes(getBinary(row));
    }
  }
}
