variable "name" {
  description = "Name of the pool: lower case letters, digits and dashes."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$", var.name))
    error_message = "The name has at most 40 lower case letters, digits and dashes, and begins and ends with a letter or digit."
  }
}

variable "provider_name" {
  description = "What the server's settings call this account and region (providers[].name)."
  type        = string
  default     = "aws"
}

variable "vpc_id" {
  description = "The VPC that machines go into."
  type        = string
}

variable "subnets" {
  description = "Subnet of each zone that machines may go into; they must reach the server."
  type        = map(string)

  validation {
    condition     = length(var.subnets) > 0
    error_message = "At least one zone is needed."
  }
}

variable "image_id" {
  description = "AMI with the NVIDIA driver, Python 3.11 or newer and, unless install is set, hybrid in /opt/hybrid."
  type        = string
}

variable "install" {
  description = "Package that machines install at boot, such as hybrid==0.1.0; empty when the image has it."
  type        = string
  default     = ""
}

variable "machine_types" {
  description = "EC2 instance types the pool may use."
  type        = list(string)

  validation {
    condition     = length(var.machine_types) > 0
    error_message = "At least one machine type is needed."
  }
}

variable "markets" {
  description = "spot, on_demand, or both."
  type        = list(string)
  default     = ["spot"]

  validation {
    condition     = length(var.markets) > 0 && alltrue([for m in var.markets : contains(["spot", "on_demand"], m)])
    error_message = "Markets are spot and on_demand."
  }
}

variable "max_machines" {
  description = "The most machines the pool may hold at a time."
  type        = number
}

variable "max_usd_per_hour" {
  description = "The most all machines of the pool together may cost an hour, at their price ceilings."
  type        = number
}

variable "disk_gib" {
  description = "Size of each machine's encrypted root disk."
  type        = number
  default     = 100
}

variable "root_device_name" {
  description = "Root device of the image."
  type        = string
  default     = "/dev/sda1"
}

variable "checkpoint_bucket_arn" {
  description = "S3 bucket of checkpoints and artifacts that machines may read and write; empty for none."
  type        = string
  default     = ""
}

variable "placement_groups" {
  description = "Put the machines of each gang into a cluster placement group of their own."
  type        = bool
  default     = false
}

variable "efa" {
  description = "Give machines of a gang the Elastic Fabric Adapters that their type has. Such machines get no public address: the subnets need a way out."
  type        = bool
  default     = false
}

variable "notice_queue" {
  description = "Make a queue for EC2's interruption warnings and rebalance recommendations. They are of the whole account and region: one pool of them is enough."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of everything made here, and of the machines."
  type        = map(string)
  default     = {}
}
