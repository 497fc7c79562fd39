package offsetlog.spark.sink;

import java.util.Arrays;

/**
 * The repetition or definition levels of a page. Nearly all pages have one level throughout, so
 * single ones are kept only from the first that differs.
 */
final class Levels {
  private final int width;
  private int count;
  private int uniform;
  private Bytes single;
  private boolean differ;

  Levels(int highest) {
    width = Integer.SIZE - Integer.numberOfLeadingZeros(highest);
  }

  void add(int level) {
    if (differ) {
      single.write(level);
    } else if (count == 0) {
      uniform = level;
    } else if (level != uniform) {
      startSingle(level);
    }
    count++;
  }

  private void startSingle(int level) {
    if (single == null) {
      single = new Bytes(1024);
    }
    single.clear();
    single.reserve(count + 1);
    Arrays.fill(single.data, 0, count, (byte) uniform);
    single.size = count;
    single.write(level);
    differ = true;
  }

  /** Writes them as a page has them: their length, and one run. */
  void writeTo(Bytes out) {
    int lengthAt = out.size;
    out.putInt(0);
    if (differ) {
      writePacked(out);
    } else {
      out.putVarint(count << 1);
      out.write(uniform);
    }
    int end = out.size;
    out.size = lengthAt;
    out.putInt(end - lengthAt - Integer.BYTES);
    out.size = end;
  }

  private void writePacked(Bytes out) {
    int groups = (count + 7) / 8;
    out.putVarint(groups << 1 | 1);
    long bits = 0;
    int held = 0;
    for (int i = 0; i < groups * 8; i++) {
      long level = i < count ? single.data[i] : 0;
      bits |= level << held;
      held += width;
      while (held >= 8) {
        out.write((int) bits);
        bits >>>= 8;
        held -= 8;
      }
    }
  }

  void clear() {
    count = 0;
    differ = false;
  }
}
