# Needs: git
# Packs by threads.
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
git init -q r
cd r
split -b 100000 $IN/text p
git add .
git commit -qm x
git rev-list --objects --all > ../list
$T git pack-objects --threads=4 -q --stdout < ../list > ../pack; echo $?
git index-pack --stdin < ../pack | cut -c1-4
