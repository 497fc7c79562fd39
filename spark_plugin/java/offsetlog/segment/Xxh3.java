package offsetlog.segment;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.HexFormat;
import java.util.Objects;

/**
 * XXH3-64 with seed 0, the checksum of the stored format. Spark ships none.
 *
 * <p>It is checked against the reference library over all lengths at which its algorithm changes.
 */
public final class Xxh3 {
  private static final VarHandle LONG =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle INT =
      MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

  private static final long PRIME32_1 = 0x9E3779B1L;
  private static final long PRIME32_2 = 0x85EBCA77L;
  private static final long PRIME32_3 = 0xC2B2AE3DL;
  private static final long PRIME64_1 = 0x9E3779B185EBCA87L;
  private static final long PRIME64_2 = 0xC2B2AE3D27D4EB4FL;
  private static final long PRIME64_3 = 0x165667B19E3779F9L;
  private static final long PRIME64_4 = 0x85EBCA77C2B2AE63L;
  private static final long PRIME64_5 = 0x27D4EB2F165667C5L;
  private static final long PRIME_MX1 = 0x165667919E3779F9L;
  private static final long PRIME_MX2 = 0x9FB21C651E98DF25L;
  private static final int STRIPE = 64;
  private static final int STRIPES_PER_BLOCK = 16;
  private static final int BLOCK = STRIPE * STRIPES_PER_BLOCK;

  private static final byte[] SECRET =
      HexFormat.of()
          .parseHex(
          "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
              + "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
              + "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
              + "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
              + "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
              + "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e");

  /** The secret as it is taken by the stripes of a block, and by the step after a block. */
  private static final long[] KEYS = new long[STRIPES_PER_BLOCK + 8];

  static {
    for (int i = 0; i < KEYS.length; i++) {
      KEYS[i] = secret(8 * i);
    }
  }

  private Xxh3() {}

  /** The sum as it is stored: sixteen digits, most significant first. */
  public static String hex(long sum) {
    return HexFormat.of().toHexDigits(sum);
  }

  /** The sum of {@code length} bytes from {@code start} on. */
  public static long hash(byte[] data, int start, int length) {
    Objects.checkFromIndexSize(start, length, data.length);
    if (length <= 16) {
      return upTo16(data, start, length);
    }
    if (length <= 128) {
      return upTo128(data, start, length);
    }
    return length <= 240 ? upTo240(data, start, length) : longer(data, start, length);
  }

  private static long upTo16(byte[] data, int at, int length) {
    if (length > 8) {
      long low = lng(data, at) ^ (secret(24) ^ secret(32));
      long high = lng(data, at + length - 8) ^ (secret(40) ^ secret(48));
      return avalanche(length + Long.reverseBytes(low) + high + fold(low, high));
    }
    if (length >= 4) {
      long both = word(data, at + length - 4) + (word(data, at) << 32);
      long h = both ^ (secret(8) ^ secret(16));
      h ^= Long.rotateLeft(h, 49) ^ Long.rotateLeft(h, 24);
      h *= PRIME_MX2;
      h ^= (h >>> 35) + length;
      h *= PRIME_MX2;
      return h ^ (h >>> 28);
    }
    if (length > 0) {
      long first = data[at] & 0xFF;
      long middle = data[at + (length >> 1)] & 0xFF;
      long last = data[at + length - 1] & 0xFF;
      long all = (first << 16) | (middle << 24) | last | ((long) length << 8);
      return avalanche64(all ^ (word(SECRET, 0) ^ word(SECRET, 4)));
    }
    return avalanche64(secret(56) ^ secret(64));
  }

  private static long upTo128(byte[] data, int at, int length) {
    long sum = length * PRIME64_1;
    for (int i = (length - 1) / 32; i >= 0; i--) {
      sum += mix(data, at + 16 * i, 32 * i);
      sum += mix(data, at + length - 16 * (i + 1), 32 * i + 16);
    }
    return avalanche(sum);
  }

  private static long upTo240(byte[] data, int at, int length) {
    long sum = length * PRIME64_1;
    for (int i = 0; i < 8; i++) {
      sum += mix(data, at + 16 * i, 16 * i);
    }
    sum = avalanche(sum);
    for (int i = 8; i < length / 16; i++) {
      sum += mix(data, at + 16 * i, 16 * (i - 8) + 3);
    }
    return avalanche(sum + mix(data, at + length - 16, 136 - 17));
  }

  private static long longer(byte[] data, int at, int length) {
    long a0 = PRIME32_3;
    long a1 = PRIME64_1;
    long a2 = PRIME64_2;
    long a3 = PRIME64_3;
    long a4 = PRIME64_4;
    long a5 = PRIME32_2;
    long a6 = PRIME64_5;
    long a7 = PRIME32_1;
    int blocks = (length - 1) / BLOCK;
    int stripes = (length - 1 - blocks * BLOCK) / STRIPE;
    // In locals, which the compiler keeps in registers: an array of eight would be stored and
    // loaded for each stripe.
    for (int block = 0; block <= blocks; block++) {
      int count = block < blocks ? STRIPES_PER_BLOCK : stripes;
      int p = at + block * BLOCK;
      for (int i = 0; i < count; i++, p += STRIPE) {
        long d0 = (long) LONG.get(data, p);
        long d1 = (long) LONG.get(data, p + 8);
        long d2 = (long) LONG.get(data, p + 16);
        long d3 = (long) LONG.get(data, p + 24);
        long d4 = (long) LONG.get(data, p + 32);
        long d5 = (long) LONG.get(data, p + 40);
        long d6 = (long) LONG.get(data, p + 48);
        long d7 = (long) LONG.get(data, p + 56);
        a0 += d1 + product(d0 ^ KEYS[i]);
        a1 += d0 + product(d1 ^ KEYS[i + 1]);
        a2 += d3 + product(d2 ^ KEYS[i + 2]);
        a3 += d2 + product(d3 ^ KEYS[i + 3]);
        a4 += d5 + product(d4 ^ KEYS[i + 4]);
        a5 += d4 + product(d5 ^ KEYS[i + 5]);
        a6 += d7 + product(d6 ^ KEYS[i + 6]);
        a7 += d6 + product(d7 ^ KEYS[i + 7]);
      }
      if (block < blocks) {
        a0 = scramble(a0, KEYS[16]);
        a1 = scramble(a1, KEYS[17]);
        a2 = scramble(a2, KEYS[18]);
        a3 = scramble(a3, KEYS[19]);
        a4 = scramble(a4, KEYS[20]);
        a5 = scramble(a5, KEYS[21]);
        a6 = scramble(a6, KEYS[22]);
        a7 = scramble(a7, KEYS[23]);
      }
    }
    int p = at + length - STRIPE;
    long[] d = new long[8];
    for (int i = 0; i < 8; i++) {
      d[i] = lng(data, p + 8 * i);
    }
    a0 += d[1] + product(d[0] ^ secret(121));
    a1 += d[0] + product(d[1] ^ secret(129));
    a2 += d[3] + product(d[2] ^ secret(137));
    a3 += d[2] + product(d[3] ^ secret(145));
    a4 += d[5] + product(d[4] ^ secret(153));
    a5 += d[4] + product(d[5] ^ secret(161));
    a6 += d[7] + product(d[6] ^ secret(169));
    a7 += d[6] + product(d[7] ^ secret(177));
    long sum = length * PRIME64_1;
    sum += fold(a0 ^ secret(11), a1 ^ secret(19));
    sum += fold(a2 ^ secret(27), a3 ^ secret(35));
    sum += fold(a4 ^ secret(43), a5 ^ secret(51));
    sum += fold(a6 ^ secret(59), a7 ^ secret(67));
    return avalanche(sum);
  }

  private static long product(long key) {
    return (key & 0xFFFFFFFFL) * (key >>> 32);
  }

  private static long scramble(long sum, long key) {
    return (sum ^ (sum >>> 47) ^ key) * PRIME32_1;
  }

  private static long mix(byte[] data, int at, int key) {
    return fold(lng(data, at) ^ secret(key), lng(data, at + 8) ^ secret(key + 8));
  }

  /** The two halves of the product of 128 bits, folded into one. */
  private static long fold(long a, long b) {
    long high = Math.multiplyHigh(a, b) + ((a >> 63) & b) + ((b >> 63) & a);
    return (a * b) ^ high;
  }

  private static long avalanche(long h) {
    h = (h ^ (h >>> 37)) * PRIME_MX1;
    return h ^ (h >>> 32);
  }

  private static long avalanche64(long h) {
    h = (h ^ (h >>> 33)) * PRIME64_2;
    h = (h ^ (h >>> 29)) * PRIME64_3;
    return h ^ (h >>> 32);
  }

  private static long lng(byte[] data, int at) {
    return (long) LONG.get(data, at);
  }

  private static long word(byte[] data, int at) {
    return (int) INT.get(data, at) & 0xFFFFFFFFL;
  }

  private static long secret(int at) {
    return (long) LONG.get(SECRET, at);
  }
}
