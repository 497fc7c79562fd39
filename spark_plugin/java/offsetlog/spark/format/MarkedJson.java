package offsetlog.spark.format;

import offsetlog.segment.Xxh3;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * JSON that Python puts into what it pickles, to be found here without unpickling it:
 * sixteen bytes that say what it is, its sum (eight bytes), its length (four), and itself. See
 * {@code runtime/marked_json.py}.
 */
public final class MarkedJson {
  private static final int HEADER = 16 + Long.BYTES + Integer.BYTES;

  private MarkedJson() {}

  /** The first text behind the mark whose sum is right; null if there is none. */
  public static String in(byte[] pickled, String mark) {
    byte[] sign = mark.getBytes(StandardCharsets.US_ASCII);
    ByteBuffer data = ByteBuffer.wrap(pickled).order(ByteOrder.LITTLE_ENDIAN);
    for (int at = 0; at + HEADER <= pickled.length; at++) {
      if (!isAt(pickled, at, sign)) {
        continue;
      }
      long sum = data.getLong(at + sign.length);
      int length = data.getInt(at + sign.length + Long.BYTES);
      int start = at + HEADER;
      boolean fits = length >= 0 && length <= pickled.length - start;
      if (fits && Xxh3.hash(pickled, start, length) == sum) {
        return new String(pickled, start, length, StandardCharsets.UTF_8);
      }
    }
    return null;
  }

  private static boolean isAt(byte[] data, int at, byte[] sign) {
    for (int i = 0; i < sign.length; i++) {
      if (data[at + i] != sign[i]) {
        return false;
      }
    }
    return true;
  }
}
