package offsetlog.spark.sink;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A row of Spark's as a record. What is not as it must be is only noticed: such a row goes to
 * Python, which says what is wrong with it.
 *
 * <p>Keys and values are not copied: they lie in Spark's row, until the next one is read.
 */
final class Row {
  static final int HEADER_FIELDS = 2;
  private static final int HEADER_WEIGHT = 8;
  private static final long MICROS = 1000;

  /** Timestamps lie between minus this and this: what nanoseconds can say. */
  private static final long MOST_MILLIS = 9_223_372_036_855L - 1;

  private final Columns columns;

  UTF8String key;
  UTF8String value;
  ArrayData headers;
  int headerBytes;
  long time;

  /** The partition that the row names; -1: none. */
  int partition;

  /** Bytes of key, value and headers, as an entry counts them. */
  long bytes;

  Row(Columns columns) {
    this.columns = columns;
  }

  /** Takes a row of Spark's; whether it can be written here. */
  boolean take(InternalRow row, long now, boolean appendTime) {
    key = at(row, columns.key(), columns.textKey());
    value = at(row, columns.value(), columns.textValue());
    bytes = (key == null ? 0 : key.numBytes()) + (value == null ? 0L : value.numBytes());
    headers = null;
    if (columns.headers() >= 0 && !row.isNullAt(columns.headers()) && !takeHeaders(row)) {
      return false;
    }
    int stamped = appendTime ? -1 : columns.timestamp();
    time = stamped < 0 || row.isNullAt(stamped) ? now : Math.floorDiv(row.getLong(stamped), MICROS);
    partition = -1;
    if (columns.partition() >= 0 && !row.isNullAt(columns.partition())) {
      partition = row.getInt(columns.partition());
      return partition >= 0 && isTime(time);
    }
    return isTime(time);
  }

  private static boolean isTime(long time) {
    return -MOST_MILLIS < time && time < MOST_MILLIS;
  }

  private boolean takeHeaders(InternalRow row) {
    ArrayData list = row.getArray(columns.headers());
    int count = list.numElements();
    long size = 0;
    for (int i = 0; i < count; i++) {
      if (list.isNullAt(i)) {
        return false;
      }
      InternalRow header = list.getStruct(i, HEADER_FIELDS);
      if (header.isNullAt(0) || !header.getUTF8String(0).isValid()) {
        return false;
      }
      size += header.getUTF8String(0).numBytes() + HEADER_WEIGHT;
      size += header.isNullAt(1) ? 0 : bytesAt(header, 1, false).numBytes();
    }
    headerBytes = (int) Math.min(size, Integer.MAX_VALUE);
    bytes += size;
    headers = count == 0 ? null : list;
    return true;
  }

  private static UTF8String at(InternalRow row, int place, boolean isText) {
    return place < 0 || row.isNullAt(place) ? null : bytesAt(row, place, isText);
  }

  /** The bytes of a column. Spark's own rows show texts and bytes alike where they lie. */
  static UTF8String bytesAt(InternalRow row, int place, boolean isText) {
    if (isText || row instanceof UnsafeRow) {
      return row.getUTF8String(place);
    }
    return UTF8String.fromBytes(row.getBinary(place));
  }
}
