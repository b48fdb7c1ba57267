# Needs: flac
# Encodes.
head -c 1000000 $IN/text > raw
$T flac -s -5 --force-raw-format --endian=little --channels=2 --bps=16 --sample-rate=44100 --sign=signed raw -o o.flac; echo $?
cksum < o.flac
