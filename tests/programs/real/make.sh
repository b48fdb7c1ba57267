# Needs: make cc
# Starts four jobs at once.
cp -r $IN/project p
cd p
$T make -s -j4; echo $?
