# Needs: openssl
# Measures itself by signals, hashes a file, makes a key.
$T openssl speed -seconds 1 -bytes 1024 sha256 aes-128-cbc 2>/dev/null | grep -c "^sha256\|^aes-128\|^AES"; $T openssl dgst -sha256 $IN/text; $T openssl genrsa 1024 2>/dev/null | wc -l
