package offsetlog.spark.sink;

import java.nio.ByteOrder;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Which partition a key belongs to: that of Kafka's clients. */
final class Murmur2 {
  private static final int M = 0x5bd1e995;
  private static final int SEED = 0x9747b28c;
  private static final boolean LITTLE_ENDIAN = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;

  private Murmur2() {}

  static int partition(UTF8String key, int partitions) {
    return (hash(key) & 0x7fffffff) % partitions;
  }

  static int hash(UTF8String key) {
    Object base = key.getBaseObject();
    long at = key.getBaseOffset();
    int length = key.numBytes();
    int h = SEED ^ length;
    long whole = at + (length & ~3);
    for (; at < whole; at += 4) {
      int k = littleEndian(Platform.getInt(base, at)) * M;
      k = (k ^ k >>> 24) * M;
      h = h * M ^ k;
    }
    int rest = length & 3;
    if (rest > 0) {
      for (int i = rest - 1; i >= 0; i--) {
        h ^= (Platform.getByte(base, at + i) & 0xff) << 8 * i;
      }
      h *= M;
    }
    h = (h ^ h >>> 13) * M;
    return h ^ h >>> 15;
  }

  private static int littleEndian(int number) {
    return LITTLE_ENDIAN ? number : Integer.reverseBytes(number);
  }
}
