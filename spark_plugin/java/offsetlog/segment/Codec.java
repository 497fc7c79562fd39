package offsetlog.segment;

import com.github.luben.zstd.ZstdDecompressCtx;
import com.github.luben.zstd.ZstdException;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.zip.GZIPInputStream;
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

  private ZstdDecompressCtx zstd;
  private LZ4SafeDecompressor lz4;

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
    } catch (ZstdException | LZ4Exception | IOException error) {
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

  private static int gzip(byte[] data, int start, int length, byte[] target, int size)
      throws IOException {
    try (GZIPInputStream in =
        new GZIPInputStream(new ByteArrayInputStream(data, start, length), 1 << 13)) {
      int got = in.readNBytes(target, 0, size);
      return in.read() < 0 ? got : -1;
    }
  }

  @Override
  public void close() {
    if (zstd != null) {
      zstd.close();
      zstd = null;
    }
  }
}
