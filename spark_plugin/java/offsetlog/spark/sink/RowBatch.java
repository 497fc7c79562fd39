package offsetlog.spark.sink;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Rows of one partition on their way into a segment: the columns of SPEC.md's section 4. */
final class RowBatch {
  /** Levels of a header's parts: no headers, and in a list an element's key and value. */
  private static final int NO_HEADERS = 0;

  private static final int HEADER = 3;
  private static final int PRESENT = 4;

  final ColumnPages key = ColumnPages.flat(true);
  final ColumnPages value = ColumnPages.flat(true);
  final ColumnPages headerKey = ColumnPages.inList(PRESENT);
  final ColumnPages headerValue = ColumnPages.inList(PRESENT);
  final ColumnPages timestamp = ColumnPages.flat(false);

  int rows;
  long leastTime;
  long greatestTime;

  /** Bytes of keys, values and headers as an entry counts them. */
  long recordBytes;

  void add(Row row, Compressor compressor) throws IOException {
    addBytes(key, row.key, compressor);
    addBytes(value, row.value, compressor);
    addHeaders(row, compressor);
    timestamp.startRow(Long.BYTES, compressor);
    timestamp.addLong(row.time);
    leastTime = rows == 0 ? row.time : Math.min(leastTime, row.time);
    greatestTime = rows == 0 ? row.time : Math.max(greatestTime, row.time);
    recordBytes += row.bytes;
    rows++;
  }

  private static void addBytes(ColumnPages column, UTF8String bytes, Compressor compressor)
      throws IOException {
    if (bytes == null) {
      column.addNull(0);
      return;
    }
    int length = bytes.numBytes();
    column.startRow(length + Integer.BYTES, compressor);
    column.addBytes(bytes.getBaseObject(), bytes.getBaseOffset(), length);
  }

  private void addHeaders(Row row, Compressor compressor) throws IOException {
    ArrayData headers = row.headers;
    if (headers == null) {
      headerKey.repeat(0);
      headerKey.addNull(NO_HEADERS);
      headerValue.repeat(0);
      headerValue.addNull(NO_HEADERS);
      return;
    }
    headerKey.startRow(row.headerBytes, compressor);
    headerValue.startRow(row.headerBytes, compressor);
    for (int i = 0; i < headers.numElements(); i++) {
      InternalRow header = headers.getStruct(i, Row.HEADER_FIELDS);
      UTF8String name = header.getUTF8String(0);
      headerKey.repeat(i == 0 ? 0 : 1);
      headerKey.addBytes(name.getBaseObject(), name.getBaseOffset(), name.numBytes());
      headerValue.repeat(i == 0 ? 0 : 1);
      if (header.isNullAt(1)) {
        headerValue.addNull(HEADER);
      } else {
        UTF8String bytes = Row.bytesAt(header, 1, false);
        headerValue.addBytes(bytes.getBaseObject(), bytes.getBaseOffset(), bytes.numBytes());
      }
    }
  }

  boolean hasKeys() {
    return key.hasValues();
  }

  boolean hasHeaders() {
    return headerKey.hasValues();
  }

  /** Ends the last pages. */
  void end(Compressor compressor) throws IOException {
    for (ColumnPages column : new ColumnPages[] {key, value, headerKey, headerValue, timestamp}) {
      column.end(compressor);
    }
  }

  /** Empties it for the next rows. */
  void clear() {
    for (ColumnPages column : new ColumnPages[] {key, value, headerKey, headerValue, timestamp}) {
      column.clear();
    }
    rows = 0;
    recordBytes = 0;
  }
}
