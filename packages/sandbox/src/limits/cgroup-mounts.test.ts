import { expect, test } from 'vitest'
import { parseCgroupMounts } from './cgroup-mounts.ts'

test('a system with version 2 only', () => {
  const mountinfo = '30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n'
  expect(parseCgroupMounts(mountinfo, '0::/system.slice/ash.service\n')).toEqual({
    v1: {},
    v2: '/sys/fs/cgroup/system.slice/ash.service',
  })
})

test('a hybrid system: limits in version 1, an empty version 2 beside it', () => {
  const mountinfo = [
    '31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory',
    '32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct',
    '33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw',
  ].join('\n')
  const cgroup = '4:memory:/user/1\n2:cpu,cpuacct:/\n0::/user\n'
  expect(parseCgroupMounts(mountinfo, cgroup)).toEqual({
    v1: {
      memory: '/sys/fs/cgroup/memory/user/1',
      cpu: '/sys/fs/cgroup/cpu,cpuacct',
      cpuacct: '/sys/fs/cgroup/cpu,cpuacct',
    },
    v2: '/sys/fs/cgroup/unified/user',
  })
})

test('a container that sees only its own part of the hierarchy', () => {
  const mountinfo = '40 39 0:30 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n'
  expect(parseCgroupMounts(mountinfo, '4:memory:/docker/abc/inner\n').v1).toEqual({
    memory: '/sys/fs/cgroup/memory/inner',
  })
})

test('a system without control groups', () => {
  expect(parseCgroupMounts('', '')).toEqual({ v1: {}, v2: undefined })
})
