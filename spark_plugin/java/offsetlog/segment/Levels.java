package offsetlog.segment;

import java.util.Arrays;

/**
 * Definition and repetition levels: runs of one number, and numbers of few bits, by turns.
 *
 * <p>Invariants: nothing outside the levels' own bytes is read, and no more than {@code count}
 * numbers are written, each at most {@code most}.
 */
final class Levels {
  /** The levels that were read last. */
  byte[] values = new byte[0];

  /** Whether all of them are {@code most}; then {@link #values} are not written. */
  boolean areAllMost;

  /**
   * The levels of a page, which begin with their length.
   *
   * @return where what follows them begins
   */
  int read(byte[] data, int at, int end, int most, int count) throws Unreadable {
    int length = end - at < 4 ? -1 : Footer.little(data, at);
    if (length < 0 || length > end - at - 4) {
      throw broken();
    }
    int stop = at + 4 + length;
    decode(data, at + 4, stop, most, count);
    return stop;
  }

  private void decode(byte[] data, int at, int end, int most, int count) throws Unreadable {
    int width = 32 - Integer.numberOfLeadingZeros(most);
    areAllMost = false;
    int done = 0;
    while (done < count) {
      long head = 0;
      for (int shift = 0; ; shift += 7) {
        if (at >= end || shift > 28) {
          throw broken();
        }
        int part = data[at++];
        head |= (long) (part & 0x7F) << shift;
        if (part >= 0) {
          break;
        }
      }
      if ((head & 1) == 0) {
        int run = (int) Math.min(head >>> 1, count - done);
        if (at >= end || run == 0 || data[at] < 0 || data[at] > most) {
          throw broken();
        }
        if (run == count && data[at] == most) {
          areAllMost = true;
          return;
        }
        room(count);
        Arrays.fill(values, done, done + run, data[at++]);
        done += run;
      } else {
        // Groups of eight, each of as many bytes as a number has bits.
        long bytes = (head >>> 1) * width;
        int run = (int) Math.min((head >>> 1) * 8, count - done);
        if (run == 0 || bytes > end - at) {
          throw broken();
        }
        room(count);
        for (int i = 0, bit = 0; i < run; i++, bit += width) {
          int two = data[at + (bit >>> 3)] & 0xFF;
          if ((bit & 7) + width > 8) {
            two |= (data[at + (bit >>> 3) + 1] & 0xFF) << 8;
          }
          int value = (two >>> (bit & 7)) & ((1 << width) - 1);
          if (value > most) {
            throw broken();
          }
          values[done + i] = (byte) value;
        }
        at += (int) bytes;
        done += run;
      }
    }
  }

  private void room(int count) {
    if (values.length < count) {
      values = new byte[count];
    }
  }

  private static Unreadable broken() {
    return new Unreadable("the levels of a page do not add up");
  }
}
