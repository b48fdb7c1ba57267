# Needs: java
# Compiles at run time, threads, collects garbage.
cat > A.java <<'J'
import java.util.concurrent.*; public class A { public static void main(String[] a) throws Exception { ExecutorService e = Executors.newFixedThreadPool(4); long s = 0; java.util.List<Future<Long>> l = new java.util.ArrayList<>(); for (int i = 0; i < 8; i++) { final int k = i; l.add(e.submit(() -> { long x = k; for (int j = 0; j < 2000000; j++) x = x * 31 + j; return x; })); } for (Future<Long> f : l) s += f.get(); e.shutdown(); System.out.println(s); System.exit(6); } }
J
$T java -Xmx256m A.java; echo $?
