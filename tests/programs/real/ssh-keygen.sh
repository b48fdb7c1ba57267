# Needs: ssh-keygen
# Makes a key.
$T ssh-keygen -q -t rsa -b 2048 -N "" -f k; echo $?; ssh-keygen -l -f k | cut -d" " -f1,4; ssh-keygen -y -f k | cut -c1-12
