package offsetlog.spark.sink;

import java.io.OutputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;

/** Bytes in memory that grow; numbers are little-endian, as Parquet's are. */
final class Bytes extends OutputStream {
  private static final VarHandle INT =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final int LARGEST = Integer.MAX_VALUE - 16;

  byte[] data;
  int size;

  Bytes(int room) {
    data = new byte[room];
  }

  /** Makes room for so many bytes more. */
  void reserve(int more) {
    if (more > data.length - size) {
      grow(more);
    }
  }

  private void grow(int more) {
    long needed = (long) size + more;
    if (needed > LARGEST) {
      throw new OutOfMemoryError("a buffer would have " + needed + " bytes");
    }
    data = Arrays.copyOf(data, (int) Math.min(LARGEST, Math.max(needed, 2L * data.length)));
  }

  void putInt(int value) {
    reserve(Integer.BYTES);
    INT.set(data, size, value);
    size += Integer.BYTES;
  }

  void putLong(long value) {
    reserve(Long.BYTES);
    LONG.set(data, size, value);
    size += Long.BYTES;
  }

  /** Bytes that lie where {@code base} and {@code offset} say, in the manner of {@link Platform}. */
  void put(Object base, long offset, int length) {
    reserve(length);
    if (base instanceof byte[] array) {
      System.arraycopy(array, (int) (offset - Platform.BYTE_ARRAY_OFFSET), data, size, length);
    } else {
      Platform.copyMemory(base, offset, data, Platform.BYTE_ARRAY_OFFSET + size, length);
    }
    size += length;
  }

  void putVarint(int value) {
    int rest = value;
    while ((rest & ~0x7f) != 0) {
      write(rest | 0x80);
      rest >>>= 7;
    }
    write(rest);
  }

  @Override
  public void write(int one) {
    reserve(1);
    data[size++] = (byte) one;
  }

  @Override
  public void write(byte[] source, int from, int length) {
    reserve(length);
    System.arraycopy(source, from, data, size, length);
    size += length;
  }

  void clear() {
    size = 0;
  }
}
