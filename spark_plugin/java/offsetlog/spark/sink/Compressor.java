package offsetlog.spark.sink;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdCompressCtx;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.zip.GZIPOutputStream;
import net.jpountz.lz4.LZ4Compressor;
import net.jpountz.lz4.LZ4Factory;
import org.apache.parquet.format.CompressionCodec;
import org.xerial.snappy.Snappy;

/** A topic's codec, as Spark ships it, and memory to work in. One task uses it, and closes it. */
abstract class Compressor implements AutoCloseable {
  final CompressionCodec codec;
  final Bytes plainPage = new Bytes(1024);
  final Bytes packedPage = new Bytes(1024);

  private Compressor(CompressionCodec codec) {
    this.codec = codec;
  }

  /** Adds the compressed form of bytes to {@code out}. */
  abstract void compress(byte[] source, int from, int length, Bytes out) throws IOException;

  @Override
  public void close() {}

  /** The codec of a topic whose {@code compression.type} is this; null where it is not known. */
  static Compressor of(String compression) {
    return switch (compression) {
      case "none" -> new None();
      case "zstd" -> new ZstdCodec();
      case "lz4" -> new Lz4();
      case "snappy" -> new SnappyCodec();
      case "gzip" -> new Gzip();
      default -> null;
    };
  }

  private static final class None extends Compressor {
    None() {
      super(CompressionCodec.UNCOMPRESSED);
    }

    @Override
    void compress(byte[] source, int from, int length, Bytes out) {
      out.write(source, from, length);
    }
  }

  private static final class ZstdCodec extends Compressor {
    private static final int LEVEL = 1;
    private final ZstdCompressCtx context = new ZstdCompressCtx().setLevel(LEVEL);

    ZstdCodec() {
      super(CompressionCodec.ZSTD);
    }

    @Override
    void compress(byte[] source, int from, int length, Bytes out) {
      int bound = Math.toIntExact(Zstd.compressBound(length));
      out.reserve(bound);
      out.size += context.compressByteArray(out.data, out.size, bound, source, from, length);
    }

    @Override
    public void close() {
      context.close();
    }
  }

  private static final class Lz4 extends Compressor {
    private final LZ4Compressor compressor = LZ4Factory.fastestInstance().fastCompressor();

    Lz4() {
      super(CompressionCodec.LZ4_RAW);
    }

    @Override
    void compress(byte[] source, int from, int length, Bytes out) {
      int bound = compressor.maxCompressedLength(length);
      out.reserve(bound);
      out.size += compressor.compress(source, from, length, out.data, out.size, bound);
    }
  }

  private static final class SnappyCodec extends Compressor {
    SnappyCodec() {
      super(CompressionCodec.SNAPPY);
    }

    @Override
    void compress(byte[] source, int from, int length, Bytes out) throws IOException {
      out.reserve(Snappy.maxCompressedLength(length));
      out.size += Snappy.compress(source, from, length, out.data, out.size);
    }
  }

  private static final class Gzip extends Compressor {
    Gzip() {
      super(CompressionCodec.GZIP);
    }

    @Override
    void compress(byte[] source, int from, int length, Bytes out) throws IOException {
      ByteArrayOutputStream memory = new ByteArrayOutputStream(length / 2 + 64);
      try (GZIPOutputStream stream = new GZIPOutputStream(memory)) {
        stream.write(source, from, length);
      }
      out.write(memory.toByteArray(), 0, memory.size());
    }
  }
}
