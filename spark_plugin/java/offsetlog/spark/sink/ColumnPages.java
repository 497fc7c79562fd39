package offsetlog.spark.sink;

import java.io.IOException;
import org.apache.parquet.format.CompressionCodec;
import org.apache.parquet.format.DataPageHeader;
import org.apache.parquet.format.Encoding;
import org.apache.parquet.format.PageHeader;
import org.apache.parquet.format.PageType;
import org.apache.parquet.format.Util;

/**
 * One leaf column of a row group in the making: plain pages of version 1, each compressed as soon
 * as it is full.
 *
 * <p>A column of bytes that a codec would work on for nothing (random, encrypted or packed ones)
 * is left as it is. A sample of the first page decides.
 */
final class ColumnPages {
  private static final int PAGE_BYTES = 1 << 20;
  private static final int FIRST_ROOM = 4096;
  private static final int SAMPLE_BYTES = 64 * 1024;
  private static final int SAMPLES = 4;
  private static final double WORTH = 0.95;

  private final int presentLevel;
  private final Levels repetitions;
  private final Levels definitions;
  private final boolean maySkipCodec;
  private final Bytes page = new Bytes(FIRST_ROOM);
  private int pageValues;

  /** The finished pages. */
  final Bytes pages = new Bytes(FIRST_ROOM);
  CompressionCodec codec;
  long values;
  private boolean hasValues;
  long unpackedBytes;

  /** A column that is not nested. */
  static ColumnPages flat(boolean ofBytes) {
    return new ColumnPages(1, 0, ofBytes);
  }

  /** A column within a list. */
  static ColumnPages inList(int presentLevel) {
    return new ColumnPages(presentLevel, 1, false);
  }

  private ColumnPages(int presentLevel, int mostRepeated, boolean maySkipCodec) {
    this.presentLevel = presentLevel;
    this.maySkipCodec = maySkipCodec;
    repetitions = mostRepeated == 0 ? null : new Levels(mostRepeated);
    definitions = new Levels(presentLevel);
  }

  /** Ends a page that is full before the next row, which needs so many bytes. */
  void startRow(int bytes, Compressor compressor) throws IOException {
    if (page.size + (long) bytes > PAGE_BYTES && pageValues > 0) {
      endPage(compressor);
    }
  }

  void addBytes(Object base, long offset, int length) {
    define(presentLevel);
    page.putInt(length);
    page.put(base, offset, length);
  }

  void addLong(long value) {
    define(presentLevel);
    page.putLong(value);
  }

  /** A value that is not there; the level says what of it is. */
  void addNull(int level) {
    definitions.add(level);
    pageValues++;
  }

  /** Whether the next value goes on with the list of the one before (1) or begins another. */
  void repeat(int level) {
    repetitions.add(level);
  }

  private void define(int level) {
    definitions.add(level);
    pageValues++;
    hasValues = true;
  }

  /** Whether any of its values is not null. */
  boolean hasValues() {
    return hasValues;
  }

  /** Ends the last page. */
  void end(Compressor compressor) throws IOException {
    if (pageValues > 0) {
      endPage(compressor);
    }
  }

  private void endPage(Compressor compressor) throws IOException {
    if (codec == null) {
      boolean idle = maySkipCodec && !isWorthIt(compressor);
      codec = idle ? CompressionCodec.UNCOMPRESSED : compressor.codec;
    }
    Bytes plain = compressor.plainPage;
    plain.clear();
    if (repetitions != null) {
      repetitions.writeTo(plain);
      repetitions.clear();
    }
    definitions.writeTo(plain);
    definitions.clear();
    int levels = plain.size;
    int unpacked = levels + page.size;
    if (codec == CompressionCodec.UNCOMPRESSED) {
      unpackedBytes += writeHeader(unpacked, unpacked) + unpacked;
      pages.write(plain.data, 0, levels);
      pages.write(page.data, 0, page.size);
    } else {
      plain.write(page.data, 0, page.size);
      Bytes packed = compressor.packedPage;
      packed.clear();
      compressor.compress(plain.data, 0, unpacked, packed);
      unpackedBytes += writeHeader(unpacked, packed.size) + unpacked;
      pages.write(packed.data, 0, packed.size);
    }
    values += pageValues;
    page.clear();
    pageValues = 0;
  }

  private int writeHeader(int unpacked, int stored) throws IOException {
    PageHeader header = new PageHeader(PageType.DATA_PAGE, unpacked, stored);
    header.setData_page_header(
        new DataPageHeader(pageValues, Encoding.PLAIN, Encoding.RLE, Encoding.RLE));
    int before = pages.size;
    Util.writePageHeader(header, pages);
    return pages.size - before;
  }

  private boolean isWorthIt(Compressor compressor) throws IOException {
    if (page.size < SAMPLE_BYTES / 2) {
      return true;
    }
    Bytes sample = compressor.plainPage;
    sample.clear();
    int most = Math.min(SAMPLE_BYTES, page.size) / SAMPLES;
    for (int i = 0; i < SAMPLES; i++) {
      int from = (int) ((long) (page.size - most) * i / (SAMPLES - 1));
      sample.write(page.data, from, most);
    }
    Bytes packed = compressor.packedPage;
    packed.clear();
    compressor.compress(sample.data, 0, sample.size, packed);
    return packed.size <= WORTH * sample.size;
  }

  /** Empties it for the next row group. */
  void clear() {
    pages.clear();
    codec = null;
    values = unpackedBytes = 0;
    hasValues = false;
  }
}
