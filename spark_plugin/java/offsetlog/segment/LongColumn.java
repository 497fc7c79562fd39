package offsetlog.segment;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Times or offsets, none of which is null: the numbers of the page, multiplied by a factor. */
public final class LongColumn extends Column {
  static final VarHandle INT =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);
  static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  private final long factor;
  public long[] values = new long[0];

  /** What {@link #loadAll} fills next. */
  private long[] spare = new long[0];

  LongColumn(Codec codec, long factor) {
    super(codec);
    this.factor = factor;
  }

  /** Decode all pages: the rows of the row group lie in {@link #values}. */
  void loadAll(int rows) throws Unreadable {
    available();
    if (count == rows) {
      return;
    }
    long[] all = spare.length < rows ? new long[rows] : spare;
    int done = 0;
    while (true) {
      System.arraycopy(values, 0, all, done, count);
      done += count;
      if (!pages.hasNext()) {
        break;
      }
      pages.header();
      load();
    }
    spare = values;
    values = all;
    row = 0;
    count = rows;
  }

  @Override
  void decode(int from) throws Unreadable {
    if (!levels.areAllMost) {
      for (int i = 0; i < count; i++) {
        if (levels.values[i] == 0) {
          throw new Unreadable("a number is null");
        }
      }
    }
    if (values.length < count) {
      values = new long[count];
    }
    if (pages.encoding == Pages.PLAIN) {
      if (pages.to - from != 8L * count) {
        throw Pages.broken();
      }
      for (int i = 0; i < count; i++) {
        values[i] = (long) LONG.get(pages.bytes, from + 8 * i);
      }
    } else if (pages.encoding == Pages.DELTA_BINARY_PACKED) {
      Deltas.read(pages.bytes, from, pages.to, values, count);
    } else {
      throw new Unreadable("numbers have another encoding than ours");
    }
    if (factor != 1) {
      scale();
    }
  }

  private void scale() throws Unreadable {
    long most = Long.MAX_VALUE / factor;
    for (int i = 0; i < count; i++) {
      long value = values[i];
      if (value > most || value < -most) {
        throw new Unreadable("a time is too far away");
      }
      values[i] = value * factor;
    }
  }
}
