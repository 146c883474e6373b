provider "aws" {
  region = "us-east-1"
}

variable "image_id" {
  description = "AMI of the machines."
  type        = string
}

data "aws_vpc" "default" {
  default = true
}

data "aws_subnets" "default" {
  filter {
    name   = "vpc-id"
    values = [data.aws_vpc.default.id]
  }
}

data "aws_subnet" "each" {
  for_each = toset(data.aws_subnets.default.ids)
  id       = each.value
}

module "spot_g5" {
  source = "../../modules/aws-burst-pool"

  name             = "spot-g5"
  vpc_id           = data.aws_vpc.default.id
  subnets          = { for subnet in data.aws_subnet.each : subnet.availability_zone => subnet.id }
  image_id         = var.image_id
  install          = "hybrid==0.1.0"
  machine_types    = ["g5.xlarge", "g5.12xlarge"]
  markets          = ["spot", "on_demand"]
  max_machines     = 4
  max_usd_per_hour = 12
  tags             = { team = "research" }
}

output "pool" {
  value = module.spot_g5.pool
}

output "notice_queue" {
  value = module.spot_g5.notice_queue
}
