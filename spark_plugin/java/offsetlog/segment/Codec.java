package offsetlog.segment;

import com.github.luben.zstd.ZstdDecompressCtx;
import com.github.luben.zstd.ZstdException;
import java.io.IOException;
import java.util.zip.CRC32;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;
import net.jpountz.lz4.LZ4Exception;
import net.jpountz.lz4.LZ4Factory;
import net.jpountz.lz4.LZ4SafeDecompressor;
import org.xerial.snappy.Snappy;

/**
 * The codecs of pages, by Parquet's numbers: those that Spark ships. Used by one thread.
 *
 * <p>Invariants: nothing is written outside {@code [0, size)} of the target, which has that room;
 * and exactly {@code size} bytes are, or the page is unreadable.
 */
final class Codec implements AutoCloseable {
  static final int PLAIN = 0;
  private static final int SNAPPY = 1;
  private static final int GZIP = 2;
  private static final int ZSTD = 6;
  private static final int LZ4_RAW = 7;

  /** Deflate, and no flag. */
  private static final long GZIP_MAGIC = 0x00088B1FL;

  private static final int GZIP_HEADER = 10;
  private static final int GZIP_TRAILER = 8;

  private ZstdDecompressCtx zstd;
  private LZ4SafeDecompressor lz4;
  private Inflater inflater;

  void decompress(int codec, byte[] data, int start, int length, byte[] target, int size)
      throws Unreadable {
    int got;
    try {
      got =
          switch (codec) {
            case ZSTD -> zstd().decompressByteArray(target, 0, size, data, start, length);
            case SNAPPY -> snappy(data, start, length, target, size);
            case LZ4_RAW -> lz4().decompress(data, start, length, target, 0, size);
            case GZIP -> gzip(data, start, length, target, size);
            default -> throw new Unreadable("it is compressed by codec " + codec);
          };
    } catch (ZstdException | LZ4Exception | IOException | DataFormatException error) {
      throw new Unreadable("a page can't be decompressed");
    }
    if (got != size) {
      throw new Unreadable("a page has another size than it says");
    }
  }

  private ZstdDecompressCtx zstd() {
    if (zstd == null) {
      zstd = new ZstdDecompressCtx();
    }
    return zstd;
  }

  private LZ4SafeDecompressor lz4() {
    if (lz4 == null) {
      lz4 = LZ4Factory.fastestInstance().safeDecompressor();
    }
    return lz4;
  }

  private static int snappy(byte[] data, int start, int length, byte[] target, int size)
      throws IOException {
    // It writes as many as the data says.
    boolean fits = Snappy.uncompressedLength(data, start, length) == size;
    return fits ? Snappy.rawUncompress(data, start, length, target, 0) : -1;
  }

  /** One member without extras, as writers write it, to its last byte; -1: it is another. */
  private int gzip(byte[] data, int start, int length, byte[] target, int size)
      throws DataFormatException {
    int end = start + length - GZIP_TRAILER;
    boolean isPlain =
        end - start >= GZIP_HEADER && (Footer.little(data, start) & 0xFFFFFFFFL) == GZIP_MAGIC;
    if (!isPlain) {
      return -1;
    }
    inflater = inflater == null ? new Inflater(true) : inflater;
    inflater.reset();
    inflater.setInput(data, start + GZIP_HEADER, end - start - GZIP_HEADER);
    byte[] beyond = new byte[1];
    int got = 0;
    while (!inflater.finished()) {
      // At the end of its bytes it has to be asked once more, or it does not see that it ends.
      int some =
          got < size ? inflater.inflate(target, got, size - got) : inflater.inflate(beyond);
      if (got == size && some > 0 || some == 0 && !inflater.finished()) {
        return -1;
      }
      got += some;
    }
    CRC32 sum = new CRC32();
    sum.update(target, 0, got);
    boolean fits =
        inflater.getRemaining() == 0
            && Footer.little(data, end) == (int) sum.getValue()
            && Footer.little(data, end + 4) == got;
    return fits ? got : -1;
  }

  @Override
  public void close() {
    if (zstd != null) {
      zstd.close();
      zstd = null;
    }
    if (inflater != null) {
      inflater.end();
      inflater = null;
    }
  }
}
