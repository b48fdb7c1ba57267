# Needs: ffmpeg
# Encodes by threads.
$T ffmpeg -nostdin -v error -threads 4 -f lavfi -i testsrc=duration=1:size=160x120:rate=10 -c:v mpeg4 -threads 4 -flags +bitexact -fflags +bitexact -y o.avi; echo $?
cksum < o.avi
