# Needs: git
# Collects garbage: starts itself, packs by threads.
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
git init -q r
cd r
split -b 100000 $IN/text p
git add .
git commit -qm x
for f in p*; do echo more >> $f; done
git commit -qam y
git config pack.threads 4
$T git gc -q --prune=now; echo $?
git fsck --full 2>&1
git rev-parse HEAD
ls .git/objects/pack | wc -l
