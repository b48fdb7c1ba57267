# Needs: tar
# Makes an archive.
$T tar -cf o.tar --sort=name --mtime=@0 -C $IN project page; echo $?
cksum < o.tar
