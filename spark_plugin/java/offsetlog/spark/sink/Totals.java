package offsetlog.spark.sink;

/** What an entry says of some records. */
final class Totals {
  long records;
  long bytes;
  long leastTime = Long.MAX_VALUE;
  long greatestTime = Long.MIN_VALUE;

  void add(RowBatch rows) {
    records += rows.rows;
    bytes += rows.recordBytes;
    leastTime = Math.min(leastTime, rows.leastTime);
    greatestTime = Math.max(greatestTime, rows.greatestTime);
  }
}
