package offsetlog.spark.source;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import net.razorvine.pickle.Unpickler;

/**
 * A planned partition as Python pickles it: a call of {@code from_plan} with the plan's bytes.
 *
 * <p>The JVM takes the bytes out of it, and makes such a call with a second argument: what of the
 * plan is to be read.
 */
final class Pickles {
  private static final String MODULE = "pyspark_offsetlog.source.plans";
  private static final String FUNCTION = "from_plan";

  static {
    Unpickler.registerConstructor(MODULE, FUNCTION, arguments -> arguments[0]);
  }

  private Pickles() {}

  /** The plan of a pickled partition; null if it is another pickle than that. */
  static byte[] plan(byte[] pickle) {
    try {
      return new Unpickler().loads(pickle) instanceof byte[] plan ? plan : null;
    } catch (IOException | RuntimeException error) {
      return null;
    }
  }

  static byte[] fromPlan(byte[] plan, String window) {
    ByteArrayOutputStream out = new ByteArrayOutputStream(plan.length + window.length() + 128);
    // Protocol 3: a global, two bytes objects, a tuple of them, and the call.
    out.writeBytes(new byte[] {(byte) 0x80, 3, 'c'});
    out.writeBytes((MODULE + "\n" + FUNCTION + "\n").getBytes(StandardCharsets.US_ASCII));
    bytes(out, plan);
    bytes(out, window.getBytes(StandardCharsets.UTF_8));
    out.writeBytes(new byte[] {(byte) 0x86, 'R', '.'});
    return out.toByteArray();
  }

  private static void bytes(ByteArrayOutputStream out, byte[] data) {
    out.write('B');
    ByteBuffer length = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(data.length);
    out.writeBytes(length.array());
    out.writeBytes(data);
  }
}
